# Written by fleetctl to <pool>.auto.tfvars.json; every message says what to change.

variable "pool_id" {
  type        = string
  description = "Pool that the hosts belong to; a host is named <pool>-<number>."

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,57}[a-z0-9])?$", var.pool_id))
    error_message = "pool_id must be 1 to 59 of a-z, 0-9 and inner '-': rename the pool in the fleet file."
  }
}

variable "vendor" {
  type        = string
  description = "Accelerator vendor that the emulated hosts stand for."

  validation {
    condition     = contains(["nvidia", "amd"], var.vendor)
    error_message = "vendor must be \"nvidia\" or \"amd\": change the pool's vendor in the fleet file."
  }
}

variable "sku" {
  type        = string
  description = "Catalogue name of the size that the emulated hosts stand for."

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$", var.sku))
    error_message = "sku must be 1 to 64 letters, digits, '_', '.' and '-', starting with a letter or digit: change the pool's sku in the fleet file."
  }
}

variable "region" {
  type        = string
  description = "Region that the emulated hosts stand for."

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9-]{0,62}$", var.region))
    error_message = "region must be 1 to 63 of a-z, 0-9 and '-': change the pool's region in the fleet file."
  }
}

variable "host_count" {
  type        = number
  description = "Hosts wanted; numbers run from 1, the highest go first when the count falls."

  validation {
    condition     = var.host_count >= 0 && var.host_count <= 64 && floor(var.host_count) == var.host_count
    error_message = "host_count must be a whole number from 0 to 64: change the pool's count or limit in the fleet file."
  }
}

variable "hold" {
  type        = bool
  description = "While true no host of this pool can be destroyed, except by a fleetctl release (which carries a permit)."
  default     = false
}

variable "lab_root" {
  type        = string
  description = "Folder that holds one folder per host, absolute."

  validation {
    condition     = can(regex("^/[A-Za-z0-9_./-]+$", var.lab_root)) && !strcontains(var.lab_root, "..")
    error_message = "lab_root must be an absolute path of letters, digits, '_', '.', '/' and '-', without '..': start the lab anew (fleetctl lab down, fleetctl lab up)."
  }
}

variable "python" {
  type        = string
  description = "Python interpreter that has fleetctl installed, absolute; it runs the lab's host maker."

  validation {
    condition     = startswith(var.python, "/")
    error_message = "python must be the absolute path of an interpreter: run fleetctl from the environment that it is installed in."
  }
}

variable "delay_s" {
  type        = number
  description = "Emulated boot time of a host, in seconds."
  default     = 0

  validation {
    condition     = var.delay_s >= 0 && var.delay_s <= 600
    error_message = "delay_s must be 0 to 600 seconds: change the lab's boot delay."
  }
}

variable "network" {
  type        = string
  description = "First three numbers of the addresses of real hosts (systemd-nspawn, needs root); empty for emulated ones."
  default     = ""

  validation {
    condition     = can(regex("^(10\\.213\\.[0-9]{1,3})?$", var.network))
    error_message = "network must be empty or 10.213.N: start the lab anew (fleetctl lab down, fleetctl lab up)."
  }
}

variable "tags" {
  type        = map(string)
  description = "Tags recorded with each host."
  default     = {}

  validation {
    condition     = length(var.tags) <= 40 && alltrue([for k, v in var.tags : can(regex("^[A-Za-z0-9_.:-]{1,64}$", k)) && length(v) <= 256])
    error_message = "tags may be at most 40, keys 1 to 64 of letters, digits, '_', '.', ':' and '-', values up to 256 characters: remove or shorten some in the fleet file."
  }
}
