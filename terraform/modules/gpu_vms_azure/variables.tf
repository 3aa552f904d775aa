# Facts of the pool; the wrappers amd_pool_azure and nvidia_pool_azure check them against the sizes they know.

variable "pool_id" {
  type        = string
  description = "Pool that the hosts belong to; a host is named <pool>-<number>."

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,53}[a-z0-9])?$", var.pool_id))
    error_message = "pool_id must be 1 to 55 of a-z, 0-9 and inner '-' (Azure allows 64 for a host name): rename the pool in the fleet file."
  }
}

variable "location" {
  type        = string
  description = "Azure region, such as eastus2."

  validation {
    condition     = can(regex("^[a-z0-9]{2,40}$", var.location))
    error_message = "location must be a region's short name, such as eastus2 (lower case, no spaces): change the pool's region in the fleet file."
  }
}

variable "resource_group_name" {
  type        = string
  description = "Resource group that takes everything; it must exist."

  validation {
    condition     = can(regex("^[A-Za-z0-9._()-]{1,89}[A-Za-z0-9_()-]$", var.resource_group_name))
    error_message = "resource_group_name must be 2 to 90 letters, digits, '.', '_', '(', ')' and '-', not ending with '.'."
  }
}

variable "subnet_id" {
  type        = string
  description = "Resource id of the subnet of the hosts' Ethernet cards."

  validation {
    condition     = can(regex("^/subscriptions/.+/subnets/[^/]+$", var.subnet_id))
    error_message = "subnet_id must be a whole resource id (/subscriptions/.../subnets/NAME): copy it from the network module's output."
  }
}

variable "size" {
  type        = string
  description = "VM size. Azure's provider does not check that it exists; the wrapping module does."
}

variable "host_count" {
  type        = number
  description = "Hosts wanted; numbers run from 1, the highest go first when the count falls."

  validation {
    condition     = var.host_count >= 0 && var.host_count <= 100 && floor(var.host_count) == var.host_count
    error_message = "host_count must be a whole number from 0 to 100: change the pool's count or limit in the fleet file, or make two pools."
  }
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

  validation {
    condition     = var.image.id == null || can(regex("^/(subscriptions|communityGalleries|sharedGalleries)/", var.image.id))
    error_message = "image.id must be a whole resource id: leave it out to use publisher, offer, sku and version."
  }
}

variable "admin" {
  type = object({
    username   = optional(string, "azureuser")
    public_key = string
  })
  description = "Login of the hosts; by key only."

  validation {
    condition     = can(regex("^[a-z_][a-z0-9_-]{0,31}$", var.admin.username)) && !contains(["admin", "root", "administrator"], var.admin.username)
    error_message = "admin.username must be a Linux name that Azure allows (not root, admin or administrator)."
  }

  validation {
    condition     = can(regex("^(ssh-rsa|ssh-ed25519) [A-Za-z0-9+/=]{60,}( .*)?$", var.admin.public_key))
    error_message = "admin.public_key must be one line of an OpenSSH public key (ssh-ed25519 or ssh-rsa): give the text of the .pub file, never the private key."
  }
}

variable "spot" {
  type = object({
    enabled         = optional(bool, false)
    eviction_policy = optional(string, "Delete")
    max_bid_price   = optional(number, -1)
  })
  description = "Spot capacity: cheap, may be taken with at most 30 s of notice. max_bid_price is USD per hour, -1 for up to the on-demand price."
  default     = {}

  validation {
    condition     = contains(["Delete", "Deallocate"], var.spot.eviction_policy)
    error_message = "spot.eviction_policy must be \"Delete\" or \"Deallocate\"."
  }

  validation {
    condition     = var.spot.max_bid_price == -1 || var.spot.max_bid_price > 0
    error_message = "spot.max_bid_price must be -1 (up to the on-demand price) or above 0."
  }

  validation {
    condition     = !(var.spot.enabled && var.spot.eviction_policy == "Deallocate" && var.os_disk.ephemeral)
    error_message = "a host with an ephemeral OS disk cannot be deallocated: set spot.eviction_policy to \"Delete\", or os_disk.ephemeral to false."
  }
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

  validation {
    condition     = contains(["vm", "scale_set"], var.placement.form)
    error_message = "placement.form must be \"vm\" or \"scale_set\"."
  }

  validation {
    condition     = var.placement.zone == null || can(regex("^[1-9]$", var.placement.zone))
    error_message = "placement.zone must be a zone's number (\"1\" to \"9\"), or left out for none."
  }

  validation {
    condition     = !(var.placement.availability_set && (var.placement.zone != null || var.placement.form == "scale_set"))
    error_message = "placement.availability_set cannot be had together with a zone or a scale set: choose one."
  }

  validation {
    condition     = var.placement.fault_domains >= 1 && var.placement.fault_domains <= 5
    error_message = "placement.fault_domains must be 1 to 5."
  }
}

variable "reservation" {
  type = object({
    create   = optional(bool, false)
    group_id = optional(string)
  })
  description = "On-demand capacity reservation: the only guarantee that the hosts can be had. It is billed from its making, used or not."
  default     = {}

  validation {
    condition     = !(var.reservation.create && var.reservation.group_id != null)
    error_message = "reservation: give group_id to use one that exists, or create = true, not both."
  }

  validation {
    condition     = !((var.reservation.create || var.reservation.group_id != null) && var.spot.enabled)
    error_message = "a capacity reservation does not hold for spot hosts: set spot.enabled to false, or leave the reservation out."
  }

  validation {
    condition = !((var.reservation.create || var.reservation.group_id != null) && (
      var.placement.availability_set || var.placement.proximity_placement_group || var.placement.proximity_placement_group_id != null
    ))
    error_message = "a capacity reservation cannot be had together with an availability set or a proximity placement group: choose one."
  }
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

  validation {
    condition     = contains(["NvmeDisk", "ResourceDisk", "CacheDisk"], var.os_disk.placement)
    error_message = "os_disk.placement must be \"NvmeDisk\", \"ResourceDisk\" or \"CacheDisk\"."
  }

  validation {
    condition     = var.os_disk.size_gb >= 64 && var.os_disk.size_gb <= 2048
    error_message = "os_disk.size_gb must be 64 to 2048 GiB: the HPC images need 64."
  }
}

variable "disk_controller_type" {
  type        = string
  description = "How remote disks are attached; \"NVMe\" where the size and the image know it, else \"SCSI\"."
  default     = "SCSI"

  validation {
    condition     = contains(["NVMe", "SCSI"], var.disk_controller_type)
    error_message = "disk_controller_type must be \"NVMe\" or \"SCSI\"."
  }
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

  validation {
    condition     = can(regex("^PT([5-9]|1[0-5])M$", var.termination_notice))
    error_message = "termination_notice must be PT5M to PT15M."
  }
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

  validation {
    condition     = length(var.tags) <= 40 && alltrue([for k, v in var.tags : can(regex("^[A-Za-z0-9_.:-]{1,128}$", k)) && length(v) <= 256])
    error_message = "tags may be at most 40, keys 1 to 128 of letters, digits, '_', '.', ':' and '-', values up to 256 characters."
  }
}
