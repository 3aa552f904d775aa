variable "pool_id" {
  type        = string
  description = "Pool that the hosts belong to; a host is named <pool>-<number>."

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,57}[a-z0-9])?$", var.pool_id))
    error_message = "pool_id must be 1 to 59 of a-z, 0-9 and inner '-': rename the pool in the fleet file."
  }
}

variable "instance_type" {
  type        = string
  description = "An NVIDIA instance type that fleetctl knows."

  validation {
    condition     = can(regex("^(p4d|p4de|p5|p5e|p5en|p6-b200|g5|g6|g6e)\\.[0-9]*x?(large|metal)$", var.instance_type))
    error_message = "instance_type must be an NVIDIA type of the families p4d, p4de, p5, p5e, p5en, p6-b200, g5, g6 or g6e, such as p5.48xlarge: change the pool's sku in the fleet file."
  }
}

variable "host_count" {
  type        = number
  description = "Hosts wanted; numbers run from 1, the highest go first when the count falls."

  validation {
    condition     = var.host_count >= 0 && var.host_count <= 100 && floor(var.host_count) == var.host_count
    error_message = "host_count must be a whole number from 0 to 100: change the pool's count or limit in the fleet file, or make two pools."
  }
}

variable "form" {
  type        = string
  description = "\"instances\" (named hosts, one resource each) or \"group\" (an Auto Scaling group, so that one host that cannot be had does not fail the rest)."
  default     = "instances"

  validation {
    condition     = contains(["instances", "group"], var.form)
    error_message = "form must be \"instances\" or \"group\"."
  }
}

variable "image_id" {
  type        = string
  description = "AMI of the hosts, fixed, so that a new one never replaces them unasked."

  validation {
    condition     = can(regex("^ami-[0-9a-f]{8,17}$", var.image_id))
    error_message = "image_id must be an AMI id, such as ami-0123456789abcdef0, of the pool's region."
  }
}

variable "subnet_ids" {
  type        = list(string)
  description = "Subnets of the hosts; more than one only without a cluster placement. A subnet is in one zone."

  validation {
    condition     = length(var.subnet_ids) > 0 && alltrue([for s in var.subnet_ids : can(regex("^subnet-[0-9a-f]{8,17}$", s))])
    error_message = "subnet_ids must be at least one subnet id: take those of the network module."
  }
}

variable "security_group_ids" {
  type        = set(string)
  description = "Security groups of the hosts."

  validation {
    condition     = length(var.security_group_ids) > 0
    error_message = "security_group_ids must be at least one: take that of the network module."
  }
}

variable "user" {
  type        = string
  description = "Login that the image has, for Ansible."
  default     = "ubuntu"
}

variable "key_name" {
  type        = string
  description = "EC2 key pair of the login; null where the image brings its own way in."
  default     = null
}

variable "instance_profile" {
  type        = string
  description = "IAM instance profile of the hosts; null for none."
  default     = null
}

variable "capacity" {
  type = object({
    market         = optional(string, "on-demand")
    reservation_id = optional(string)
    max_spot_price = optional(string)
  })
  description = "How the hosts are had: on-demand, spot, or capacity-block (needs reservation_id; its instances are ended at the block's end)."
  default     = {}

  validation {
    condition     = contains(["on-demand", "spot", "capacity-block"], var.capacity.market)
    error_message = "capacity.market must be \"on-demand\", \"spot\" or \"capacity-block\"."
  }

  validation {
    condition     = var.capacity.market != "capacity-block" || var.capacity.reservation_id != null
    error_message = "a capacity block needs capacity.reservation_id (cr-...): buy the block first, its purchase cannot be undone."
  }

  validation {
    condition     = !(var.capacity.market == "spot" && var.capacity.reservation_id != null)
    error_message = "a capacity reservation does not hold for spot: set capacity.market to \"on-demand\", or leave reservation_id out."
  }
}

variable "placement" {
  type = object({
    cluster    = optional(bool, false)
    group_name = optional(string)
    efa        = optional(bool, false)
  })
  description = "cluster makes a placement group that keeps hosts close (one zone); group_name uses one that exists; efa adds the fast network card."
  default     = {}

  validation {
    condition     = !((var.placement.cluster || var.placement.group_name != null) && length(var.subnet_ids) > 1)
    error_message = "a cluster placement stands in one zone: give one subnet."
  }
}

variable "root_disk" {
  type = object({
    size_gb = optional(number, 256)
    type    = optional(string, "gp3")
    key_id  = optional(string)
  })
  description = "Root disk, always encrypted; key_id is a KMS key, null for the account's own."
  default     = {}
}

variable "tags" {
  type        = map(string)
  description = "Tags of every resource; fleetctl adds its own, by which it finds what it made."
  default     = {}

  validation {
    condition     = length(var.tags) <= 40 && alltrue([for k, v in var.tags : length(k) <= 128 && length(v) <= 256 && !startswith(lower(k), "aws:")])
    error_message = "tags may be at most 40, keys up to 128 characters and not beginning with aws:, values up to 256."
  }
}
