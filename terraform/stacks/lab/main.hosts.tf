# A host of the lab is a folder made by its host maker, and with var.network a systemd-nspawn machine; a real stack has a VM resource here.

locals {
  host_ids = [for number in range(1, var.host_count + 1) : "${var.pool_id}-${number}"]
}

resource "terraform_data" "host" {
  for_each = toset(local.host_ids)

  # All that the destroy-time provisioners need: they can see nothing but self.
  input = {
    id      = each.key
    folder  = "${var.lab_root}/${each.key}"
    pool    = var.pool_id
    vendor  = var.vendor
    sku     = var.sku
    region  = var.region
    delay_s = var.delay_s
    hold    = var.hold
    python  = var.python
    tags    = var.tags
    network = var.network
    number  = tonumber(element(split("-", each.key), -1))
  }

  # What would mean another VM in a cloud means another host here.
  triggers_replace = {
    folder  = "${var.lab_root}/${each.key}"
    vendor  = var.vendor
    sku     = var.sku
    region  = var.region
    network = var.network
  }

  # No shell: the interpreter gets one JSON argument.
  provisioner "local-exec" {
    interpreter = [self.input.python, "-m", "fleetctl.lab.host", "create"]
    command = jsonencode(merge({
      id      = self.input.id
      folder  = self.input.folder
      pool    = self.input.pool
      vendor  = self.input.vendor
      sku     = self.input.sku
      delay_s = self.input.delay_s
    }, self.input.network == "" ? {} : { network = self.input.network, number = tostring(self.input.number) }))
  }

  # Second lock behind fleetctl's own check of the plan: also a terraform destroy typed by hand stops at a held host.
  provisioner "local-exec" {
    when        = destroy
    interpreter = [self.input.python, "-c"]
    command = (
      self.input.hold
      ? "import os; os.environ.get('FLEETCTL_PERMIT') == '${self.input.pool}' or exit('host ${self.input.id} is held: release its pool first')"
      : "pass"
    )
  }

  provisioner "local-exec" {
    when        = destroy
    interpreter = [self.input.python, "-m", "fleetctl.lab.host", "destroy"]
    command = jsonencode(merge({
      id      = self.input.id
      folder  = self.input.folder
      pool    = self.input.pool
      vendor  = self.input.vendor
      sku     = self.input.sku
      delay_s = self.input.delay_s
    }, self.input.network == "" ? {} : { network = self.input.network, number = tostring(self.input.number) }))
  }
}
