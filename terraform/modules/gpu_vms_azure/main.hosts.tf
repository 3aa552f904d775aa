# The hosts. prevent_destroy stands here for everybody; fleetctl lifts it, by an override in a pool's own copy, only for a pool that is not held.

locals {
  numbers        = toset([for number in range(1, var.host_count + 1) : tostring(number)])
  host_ids       = { for number in local.numbers : "${var.pool_id}-${number}" => number }
  ordered_ids    = [for number in range(1, var.host_count + 1) : "${var.pool_id}-${number}"]
  is_reserved    = var.reservation.create || var.reservation.group_id != null
  tags           = merge(var.tags, { "fleetctl-pool" = var.pool_id })
  cloud_init     = templatefile("${path.module}/cloud-init.yaml.tftpl", { pool = var.pool_id })
  identity_ids   = length(var.identity_ids) > 0 ? var.identity_ids : toset(azurerm_user_assigned_identity.pool[*].id)
  reservation_id = var.reservation.create ? one(azurerm_capacity_reservation_group.pool[*].id) : var.reservation.group_id
}

resource "azurerm_linux_virtual_machine" "host" {
  for_each = local.host_ids

  name                  = each.key
  computer_name         = each.key
  location              = var.location
  resource_group_name   = var.resource_group_name
  size                  = var.size
  network_interface_ids = [azurerm_network_interface.host[each.key].id]

  admin_username                  = var.admin.username
  disable_password_authentication = true
  custom_data                     = base64encode(local.cloud_init)
  disk_controller_type            = var.disk_controller_type
  encryption_at_host_enabled      = var.encryption_at_host
  secure_boot_enabled             = false # a GPU driver built on the host is not signed
  source_image_id                 = var.image.id

  priority        = var.spot.enabled ? "Spot" : "Regular"
  eviction_policy = var.spot.enabled ? var.spot.eviction_policy : null
  max_bid_price   = var.spot.enabled ? var.spot.max_bid_price : null

  zone                          = var.placement.zone
  availability_set_id           = one(azurerm_availability_set.pool[*].id)
  virtual_machine_scale_set_id  = one(azurerm_orchestrated_virtual_machine_scale_set.pool[*].id)
  proximity_placement_group_id  = local.proximity_placement_group_id
  capacity_reservation_group_id = local.reservation_id

  tags = local.tags

  admin_ssh_key {
    username   = var.admin.username
    public_key = var.admin.public_key
  }

  boot_diagnostics {}

  identity {
    type         = "UserAssigned"
    identity_ids = local.identity_ids
  }

  os_disk {
    caching              = var.os_disk.ephemeral ? "ReadOnly" : "ReadWrite"
    storage_account_type = var.os_disk.ephemeral ? "Standard_LRS" : var.os_disk.storage_type
    disk_size_gb         = var.os_disk.size_gb

    dynamic "diff_disk_settings" {
      for_each = var.os_disk.ephemeral ? [var.os_disk.placement] : []

      content {
        option    = "Local"
        placement = diff_disk_settings.value
      }
    }
  }

  dynamic "source_image_reference" {
    for_each = var.image.id == null ? [var.image] : []

    content {
      publisher = source_image_reference.value.publisher
      offer     = source_image_reference.value.offer
      sku       = source_image_reference.value.sku
      version   = source_image_reference.value.version
    }
  }

  termination_notification {
    enabled = true
    timeout = var.termination_notice
  }

  timeouts {
    create = "45m"
    delete = "45m"
  }

  lifecycle {
    prevent_destroy = true
    ignore_changes  = [custom_data, admin_ssh_key, source_image_reference]
  }

  depends_on = [azurerm_capacity_reservation.pool]
}
