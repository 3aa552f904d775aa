# Written by fleetctl to <pool>.auto.tfvars.json; every message says what to change. The modules check the rest.

variable "pool_id" {
  type        = string
  description = "Pool that the hosts belong to."
}

variable "vendor" {
  type        = string
  description = "Accelerator vendor; AWS offers no AMD Instinct accelerators."

  validation {
    condition     = var.vendor == "nvidia"
    error_message = "vendor must be \"nvidia\": AWS has no instances with AMD Instinct accelerators; put the AMD pool on Azure, or use hosts that exist."
  }
}

variable "sku" {
  type        = string
  description = "Instance type."
}

variable "region" {
  type        = string
  description = "AWS region."

  validation {
    condition     = can(regex("^[a-z]{2}(-[a-z]+)+-[0-9]$", var.region))
    error_message = "region must be a region of AWS, such as us-east-1: change the pool's region in the fleet file."
  }
}

variable "zone" {
  type        = string
  description = "Availability zone, such as us-east-1a; \"\" takes those of `zones`."
  default     = ""
}

variable "zones" {
  type        = list(string)
  description = "Zones of the pool's own network; empty takes a and b of the region."
  default     = []
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

variable "image_id" {
  type        = string
  description = "AMI of the hosts."
}

variable "form" {
  type        = string
  description = "\"instances\" or \"group\"."
  default     = "instances"
}

variable "subnet_ids" {
  type        = list(string)
  description = "Subnets of the hosts; empty makes a network of the pool's own."
  default     = []
}

variable "security_group_ids" {
  type        = set(string)
  description = "Security groups of the hosts; needed with subnet_ids."
  default     = []
}

variable "network" {
  type = object({
    address_space = optional(string, "10.50.0.0/20")
    admin_sources = optional(set(string), [])
    serving       = optional(object({ ports = optional(set(number), [8000]), sources = optional(set(string), []) }), {})
    outbound      = optional(bool, true)
  })
  description = "The network of the pool's own, where it makes one."
  default     = {}
}

variable "reservation_id" {
  type        = string
  description = "Capacity reservation or block, \"\" for none."
  default     = ""
}

variable "capacity_block" {
  type        = bool
  description = "reservation_id is a capacity block: its instances are ended at the block's end."
  default     = false
}

variable "placement" {
  type = object({
    cluster = optional(bool, false)
    efa     = optional(bool, false)
  })
  description = "Where the hosts stand to each other."
  default     = {}
}

variable "key_name" {
  type        = string
  description = "EC2 key pair of the hosts' login, \"\" for none."
  default     = ""
}

variable "tags" {
  type        = map(string)
  description = "Tags of every resource, fleetctl's own among them."
  default     = {}
}
