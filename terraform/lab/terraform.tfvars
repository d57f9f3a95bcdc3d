# What make lab starts unless LAB_VARS says otherwise.
# The client networks are those that RFC 5737, RFC 3849 and RFC 2544 reserve for examples and tests.
regions = {
  eu-west = {
    number = 1
    pops = [
      { name = "ams1", location = { lat = 52.37, lon = 4.90 }, clients = ["198.51.100.0/24", "2001:db8:1::/48"] },
      { name = "fra1", location = { lat = 50.11, lon = 8.68 }, clients = ["198.18.1.0/24"] },
    ]
  }
  us-east = {
    number = 2
    pops = [
      { name = "iad1", location = { lat = 38.95, lon = -77.45 }, clients = ["203.0.113.0/24", "2001:db8:2::/48"] },
      { name = "nyc1", location = { lat = 40.71, lon = -74.01 }, clients = ["198.18.2.0/24"] },
    ]
  }
  ap-south = {
    number = 3
    pops = [
      { name = "bom1", location = { lat = 19.08, lon = 72.88 }, clients = ["192.0.2.0/24", "2001:db8:3::/48"] },
      { name = "maa1", location = { lat = 13.08, lon = 80.27 }, clients = ["198.18.3.0/24"] },
    ]
  }
}

round_trips = [
  { between = ["eu-west", "us-east"], ms = 80 },
  { between = ["eu-west", "ap-south"], ms = 140 },
  { between = ["us-east", "ap-south"], ms = 220 },
]
