variable "name" {
  type        = string
  description = "Name of the load balancer and start of the names of its target groups."

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?$", var.name))
    error_message = "name must be 1 to 22 of a-z, 0-9 and inner '-' (AWS allows 32 with our endings)."
  }
}

variable "vpc_id" {
  type        = string
  description = "Network of the targets."
}

variable "subnet_ids" {
  type        = list(string)
  description = "Subnets of the load balancer, in at least two zones."

  validation {
    condition     = length(var.subnet_ids) >= 2
    error_message = "subnet_ids must be at least two, in different zones: AWS makes no load balancer in one zone."
  }
}

variable "security_group_ids" {
  type        = set(string)
  description = "Security groups of the load balancer."
}

variable "internal" {
  type        = bool
  description = "Reachable only from inside the network."
  default     = true
}

variable "certificate_arn" {
  type        = string
  description = "Certificate of the HTTPS listener; null makes an HTTP listener, allowed only where `internal` is true."
  default     = null

  validation {
    condition     = var.certificate_arn != null || var.internal
    error_message = "a load balancer that faces the internet needs certificate_arn: give one, or set internal to true."
  }
}

variable "port" {
  type        = number
  description = "Port of the inference servers."
  default     = 8000

  validation {
    condition     = var.port >= 1 && var.port <= 65535
    error_message = "port must be 1 to 65535."
  }
}

variable "first_weights" {
  type = object({
    baseline = optional(number, 999)
    canary   = optional(number, 0)
  })
  description = "Weights at the very first apply, 0 to 999. After that the router adapter owns them, and Terraform never looks at them again."
  default     = {}

  validation {
    condition     = alltrue([for w in [var.first_weights.baseline, var.first_weights.canary] : w >= 0 && w <= 999]) && var.first_weights.baseline > 0
    error_message = "first_weights must be 0 to 999, the baseline's above 0."
  }
}

variable "health" {
  type = object({
    path     = optional(string, "/health")
    interval = optional(number, 10)
    healthy  = optional(number, 2)
    failing  = optional(number, 2)
  })
  description = "How a target is checked; interval in seconds."
  default     = {}
}

variable "access_logs" {
  type = object({
    bucket = string
    prefix = optional(string)
  })
  description = "Bucket that takes the access logs (evidence by attempt needs them); null for none."
  default     = null
}

variable "idle_timeout" {
  type        = number
  description = "Seconds without a byte before a connection is closed; long answers need more than AWS's 60."
  default     = 600
}

variable "protect" {
  type        = bool
  description = "Let AWS refuse to delete it."
  default     = true
}

variable "tags" {
  type        = map(string)
  description = "Tags of every resource."
  default     = {}
}
