terraform {
  # terraform_data came with 1.4. It is built in, so nothing is downloaded.
  required_version = ">= 1.4"

  # make lab names the file of its own lab; this is for terraform run by hand.
  backend "local" {
    path = "../../.lab/terraform.tfstate"
  }
}
