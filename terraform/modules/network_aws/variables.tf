variable "name" {
  type        = string
  description = "Start of every name made here."

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,57}[a-z0-9])?$", var.name))
    error_message = "name must be 1 to 59 of a-z, 0-9 and inner '-'."
  }
}

variable "address_space" {
  type        = string
  description = "Addresses of the network; each zone gets one sixteenth for hosts and one for what faces out."
  default     = "10.50.0.0/20"

  validation {
    condition     = can(cidrsubnet(var.address_space, 4, 0)) && can(regex("/(1[6-9]|2[0-4])$", var.address_space))
    error_message = "address_space must be an IPv4 network of /16 to /24, such as 10.50.0.0/20, that no peered network uses."
  }
}

variable "zones" {
  type        = list(string)
  description = "Availability zones, such as us-east-1a: at least one; a load balancer needs two."

  validation {
    condition     = length(var.zones) >= 1 && length(var.zones) <= 6 && length(distinct(var.zones)) == length(var.zones)
    error_message = "zones must be 1 to 6 different zones of the region."
  }
}

variable "admin_sources" {
  type        = set(string)
  description = "Networks that may reach the hosts by SSH; none by default."
  default     = []

  validation {
    condition     = alltrue([for s in var.admin_sources : can(cidrhost(s, 0)) && !endswith(s, "/0")])
    error_message = "admin_sources must be IPv4 networks, and never the whole internet (/0)."
  }
}

variable "serving" {
  type = object({
    ports   = optional(set(number), [8000])
    sources = optional(set(string), [])
  })
  description = "Who may reach the inference servers; the routers' networks. None by default."
  default     = {}

  validation {
    condition     = alltrue([for p in var.serving.ports : p >= 1 && p <= 65535]) && alltrue([for s in var.serving.sources : can(cidrhost(s, 0)) && !endswith(s, "/0")])
    error_message = "serving.ports must be 1 to 65535, serving.sources IPv4 networks, and never the whole internet (/0)."
  }
}

variable "outbound" {
  type        = bool
  description = "Give the hosts a way out (a NAT gateway in the first zone): packages, images and models come that way."
  default     = true
}

variable "tags" {
  type        = map(string)
  description = "Tags of every resource."
  default     = {}
}
