# Written by fleetctl to <pool>.auto.tfvars.json; every message says what to change. The modules check the rest.

variable "subscription_id" {
  type        = string
  description = "Subscription that pays."

  validation {
    condition     = can(regex("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", var.subscription_id))
    error_message = "subscription_id must be a subscription's id: set azure.subscription_id in the fleet file's settings."
  }
}

variable "pool_id" {
  type        = string
  description = "Pool that the hosts belong to."
}

variable "vendor" {
  type        = string
  description = "Accelerator vendor; chooses the pool module."

  validation {
    condition     = contains(["nvidia", "amd"], var.vendor)
    error_message = "vendor must be \"nvidia\" or \"amd\": change the pool's vendor in the fleet file."
  }
}

variable "sku" {
  type        = string
  description = "VM size."
}

variable "region" {
  type        = string
  description = "Azure region."
}

variable "zone" {
  type        = string
  description = "Availability zone, \"\" for none."
  default     = ""
}

variable "host_count" {
  type        = number
  description = "Hosts wanted."
}

variable "priority" {
  type        = string
  description = "\"regular\" or \"spot\"."
  default     = "regular"

  validation {
    condition     = contains(["regular", "spot"], var.priority)
    error_message = "priority must be \"regular\" or \"spot\": change the pool's priority in the fleet file."
  }
}

variable "hold" {
  type        = bool
  description = "While true nothing of this pool may be destroyed; recorded as a tag."
  default     = false
}

variable "resource_group_name" {
  type        = string
  description = "Resource group that takes everything; \"\" makes one named fleetctl-<pool>-<region>."
  default     = ""
}

variable "subnet_id" {
  type        = string
  description = "Subnet of the hosts; \"\" makes a network of the pool's own."
  default     = ""
}

variable "network" {
  type = object({
    address_space = optional(string, "10.40.0.0/20")
    admin_sources = optional(set(string), [])
    serving       = optional(object({ ports = optional(set(number), [8000]), sources = optional(set(string), []) }), {})
    outbound      = optional(bool, true)
  })
  description = "The network of the pool's own, where it makes one."
  default     = {}
}

variable "admin_public_key" {
  type        = string
  description = "OpenSSH public key of the hosts' login."
}

variable "admin_username" {
  type        = string
  description = "Login of the hosts."
  default     = "azureuser"
}

variable "infiniband" {
  type        = bool
  description = "Hosts talk to each other over InfiniBand."
  default     = false
}

variable "placement" {
  type = object({
    form                      = optional(string, "vm")
    availability_set          = optional(bool, false)
    fault_domains             = optional(number, 1)
    proximity_placement_group = optional(bool, false)
  })
  description = "Where the hosts stand to each other."
  default     = {}
}

variable "reservation" {
  type = object({
    create   = optional(bool, false)
    group_id = optional(string)
  })
  description = "On-demand capacity reservation."
  default     = {}
}

variable "os_disk" {
  type = object({
    ephemeral    = optional(bool, true)
    placement    = optional(string, "NvmeDisk")
    size_gb      = optional(number, 256)
    storage_type = optional(string, "Premium_LRS")
  })
  description = "OS disk."
  default     = {}
}

variable "tags" {
  type        = map(string)
  description = "Tags of every resource, fleetctl's own among them."
  default     = {}
}
