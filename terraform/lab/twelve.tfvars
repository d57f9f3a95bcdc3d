# Twelve regions on one machine, with the default Redis Clusters of six and two edges in each
# PoP; half of the regions have two PoPs. Without Prometheus, and without limits that regions share:
# 36 edges that exchange counts need more than two cores.
regions = {
  eu-west    = { number = 1, pops = [{ name = "ams1", location = { lat = 52.37, lon = 4.90 }, clients = ["198.51.100.0/24", "2001:db8:1::/48"] }, { name = "fra1", location = { lat = 50.11, lon = 8.68 } }] }
  us-east    = { number = 2, pops = [{ name = "iad1", location = { lat = 38.95, lon = -77.45 }, clients = ["203.0.113.0/24", "2001:db8:2::/48"] }, { name = "nyc1", location = { lat = 40.71, lon = -74.01 } }] }
  ap-south   = { number = 3, pops = [{ name = "bom1", location = { lat = 19.08, lon = 72.88 }, clients = ["192.0.2.0/24", "2001:db8:3::/48"] }, { name = "maa1", location = { lat = 13.08, lon = 80.27 } }] }
  us-west    = { number = 4, pops = [{ name = "sjc1", location = { lat = 37.34, lon = -121.89 } }, { name = "sea1", location = { lat = 47.61, lon = -122.33 } }] }
  ap-east    = { number = 5, pops = [{ name = "hkg1", location = { lat = 22.32, lon = 114.17 } }, { name = "tpe1", location = { lat = 25.03, lon = 121.57 } }] }
  sa-east    = { number = 6, pops = [{ name = "gru1", location = { lat = -23.55, lon = -46.63 } }, { name = "scl1", location = { lat = -33.45, lon = -70.67 } }] }
  eu-north   = { number = 7, pops = [{ name = "arn1", location = { lat = 59.33, lon = 18.07 } }] }
  eu-south   = { number = 8, pops = [{ name = "mxp1", location = { lat = 45.46, lon = 9.19 } }] }
  ap-north   = { number = 9, pops = [{ name = "nrt1", location = { lat = 35.68, lon = 139.69 } }] }
  ap-oceania = { number = 10, pops = [{ name = "syd1", location = { lat = -33.87, lon = 151.21 } }] }
  me-central = { number = 11, pops = [{ name = "dxb1", location = { lat = 25.20, lon = 55.27 } }] }
  af-south   = { number = 12, pops = [{ name = "jnb1", location = { lat = -26.20, lon = 28.05 } }] }
}
prometheus  = false
round_trips = []
rules       = "../../internal/edge/config/sample-rules.yaml"
