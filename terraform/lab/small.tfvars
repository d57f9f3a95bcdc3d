# Two regions with one edge each: what the tests start.
regions = {
  eu-west = {
    number        = 1
    edges_per_pop = 1
    pops          = [{ name = "ams1", location = { lat = 52.37, lon = 4.90 }, clients = ["198.51.100.0/24"] }]
  }
  us-east = {
    number        = 2
    edges_per_pop = 1
    pops          = [{ name = "iad1", location = { lat = 38.95, lon = -77.45 }, clients = ["203.0.113.0/24"] }]
  }
}
redis       = { masters = 3, replicas = 0 }
round_trips = []
