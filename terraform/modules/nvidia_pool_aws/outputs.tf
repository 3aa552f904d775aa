locals {
  intent          = lookup(var.tags, "fleetctl-intent", "")
  group_addresses = try(data.aws_instances.group[0].private_ips, [])
  group_ids       = try(data.aws_instances.group[0].ids, [])
  named = [
    for id in local.ordered_ids : {
      id         = id
      pool       = var.pool_id
      address    = aws_instance.host[id].private_ip
      connection = "ssh"
      user       = var.user
      variables  = { cloud_id = aws_instance.host[id].id, intent = local.intent, sku = var.instance_type }
    } if var.form == "instances"
  ]
  grouped = [
    for place, address in local.group_addresses : {
      id         = "${var.pool_id}-${place + 1}"
      pool       = var.pool_id
      address    = address
      connection = "ssh"
      user       = var.user
      variables  = { cloud_id = local.group_ids[place], intent = local.intent, sku = var.instance_type }
    }
  ]
}

output "hosts" {
  description = "Hosts as fleetctl reads them: in the order of their numbers, or (form \"group\") in the order in which AWS lists them."
  value       = concat(local.named, local.grouped)
}

output "launch_template_id" {
  description = "Launch template of the hosts."
  value       = aws_launch_template.pool.id
}
