"""Configure, adapter layer: prepares machines with ansible-playbook as a child process. Never decides what a host should run."""
