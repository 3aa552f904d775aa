# What differs from any other GPU host on Azure is checked here; the rest is checked by ../gpu_vms_azure.

variable "pool_id" {
  type        = string
  description = "Pool that the hosts belong to; a host is named <pool>-<number>."
}

variable "location" {
  type        = string
  description = "Azure region, such as eastus2."
}

variable "resource_group_name" {
  type        = string
  description = "Resource group that takes everything; it must exist."
}

variable "subnet_id" {
  type        = string
  description = "Resource id of the subnet of the hosts' Ethernet cards."
}

variable "size" {
  type        = string
  description = "An NVIDIA size that fleetctl knows."

  validation {
    condition     = contains(["Standard_ND96isr_H100_v5", "Standard_ND96is_H100_v5", "Standard_ND96isr_H200_v5", "Standard_NC40ads_H100_v5", "Standard_NC80adis_H100_v5", "Standard_NC24ads_A100_v4", "Standard_NC48ads_A100_v4", "Standard_NC96ads_A100_v4", "Standard_ND96asr_v4", "Standard_ND96amsr_A100_v4"], var.size)
    error_message = "size must be one of Standard_ND96isr_H100_v5, Standard_ND96is_H100_v5, Standard_ND96isr_H200_v5, Standard_NC40ads_H100_v5, Standard_NC80adis_H100_v5, Standard_NC24ads_A100_v4, Standard_NC48ads_A100_v4, Standard_NC96ads_A100_v4, Standard_ND96asr_v4, Standard_ND96amsr_A100_v4 (the provider does not check sizes): change the pool's sku in the fleet file."
  }
}

variable "infiniband" {
  type        = bool
  description = "Whether the hosts talk to each other over InfiniBand: needs an \"r\" size and one placement for all."
  default     = false

  validation {
    condition     = !var.infiniband || can(regex("^Standard_N[DC][0-9]+[a-z]*r_", var.size))
    error_message = "infiniband needs a size with an r, such as Standard_ND96isr_MI300X_v5: change size, or set infiniband to false."
  }

  validation {
    condition = !var.infiniband || var.host_count < 2 || (
      var.placement.availability_set || var.placement.proximity_placement_group || var.placement.proximity_placement_group_id != null
    )
    error_message = "InfiniBand between hosts needs them in one place: set placement.availability_set or placement.proximity_placement_group."
  }
}

variable "host_count" {
  type        = number
  description = "Hosts wanted; numbers run from 1, the highest go first when the count falls."
}

variable "image" {
  type = object({
    id        = optional(string)
    publisher = optional(string, "microsoft-dsvm")
    offer     = optional(string, "ubuntu-hpc")
    sku       = optional(string, "2404")
    version   = optional(string, "latest")
  })
  description = "A gallery image by id, else a marketplace image."
  default     = {}
}

variable "admin" {
  type = object({
    username   = optional(string, "azureuser")
    public_key = string
  })
  description = "Login of the hosts; by key only."
}

variable "spot" {
  type = object({
    enabled         = optional(bool, false)
    eviction_policy = optional(string, "Delete")
    max_bid_price   = optional(number, -1)
  })
  description = "Spot capacity: cheap, may be taken with at most 30 s of notice. max_bid_price is USD per hour, -1 for up to the on-demand price."
  default     = {}
}

variable "placement" {
  type = object({
    form                         = optional(string, "vm")
    zone                         = optional(string)
    availability_set             = optional(bool, false)
    fault_domains                = optional(number, 1)
    proximity_placement_group    = optional(bool, false)
    proximity_placement_group_id = optional(string)
  })
  description = "Where the hosts stand to each other. form: \"vm\", or \"scale_set\" (a flexible scale set that the named hosts join)."
  default     = {}
}

variable "reservation" {
  type = object({
    create   = optional(bool, false)
    group_id = optional(string)
  })
  description = "On-demand capacity reservation: the only guarantee that the hosts can be had. It is billed from its making, used or not."
  default     = {}
}

variable "os_disk" {
  type = object({
    ephemeral    = optional(bool, true)
    placement    = optional(string, "NvmeDisk")
    size_gb      = optional(number, 256)
    storage_type = optional(string, "Premium_LRS")
  })
  description = "OS disk; an ephemeral one lives on the host's own disk, costs nothing, and is lost when the host is moved."
  default     = {}
}

variable "disk_controller_type" {
  type        = string
  description = "How remote disks are attached; \"NVMe\" where the size and the image know it, else \"SCSI\"."
  default     = "SCSI"
}

variable "identity_ids" {
  type        = set(string)
  description = "User-assigned identities of the hosts; empty makes one for the pool, with no rights."
  default     = []
}

variable "termination_notice" {
  type        = string
  description = "How long a host is told before it is taken, 5 to 15 minutes, as ISO 8601."
  default     = "PT15M"
}

variable "encryption_at_host" {
  type        = bool
  description = "Encrypt temporary and cached disks; the subscription must have the feature EncryptionAtHost."
  default     = false
}

variable "tags" {
  type        = map(string)
  description = "Tags of every resource; fleetctl adds its own, by which it finds what it made."
  default     = {}
}
