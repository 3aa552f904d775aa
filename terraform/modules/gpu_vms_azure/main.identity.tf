# An identity without rights, so that none has to be added to a running host later.

resource "azurerm_user_assigned_identity" "pool" {
  count = length(var.identity_ids) > 0 ? 0 : 1

  name                = "${var.pool_id}-id"
  location            = var.location
  resource_group_name = var.resource_group_name
  tags                = local.tags
}
