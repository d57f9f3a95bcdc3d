terraform {
  # terraform_data exists since 1.4. It is built in, so nothing is downloaded.
  required_version = ">= 1.4"

  # make lab names its own state file; this is for running terraform by hand.
  backend "local" {
    path = "../../.lab/terraform.tfstate"
  }
}
