// Clients of three virtual regions: each asks the DNS server with its own network, keeps
// its connection while the address is in the answer, and falls back to the next one.
import { Client } from 'k6/x/weir';
import { check, sleep } from 'k6';

const url = __ENV.URL || 'http://edge.example.com:8080';
const dns = __ENV.DNS || '127.0.0.1:5353';
const subnets = { 'eu-west': '203.0.113.0/24', 'us-east': '198.51.100.0/24', 'ap-south': '192.0.2.0/24' };
const pops = JSON.parse(__ENV.POPS || '{"127.0.0.1": {"region": "eu-west", "pop": "ams1"}}');
const regions = Object.keys(subnets);

const clients = {};
for (const region of regions) {
  clients[region] = new Client({ region, dns, subnet: subnets[region], pops, connectTimeout: '1s' });
}

export const options = {
  vus: 3,
  duration: __ENV.DURATION || '10s',
  thresholds: {
    'http_req_failed{region:eu-west}': ['rate<0.01'],
    'http_req_failed{region:us-east}': ['rate<0.01'],
    'http_req_failed{region:ap-south}': ['rate<0.01'],
  },
};

export default function () {
  const region = regions[(__VU - 1) % regions.length];
  const res = clients[region].get(`${url}/hello`, { headers: { 'X-Forwarded-For': `10.252.${__VU}.${__ITER % 250}` } });
  check(res, { 'answered by a PoP': (r) => r.status === 200 && r.pop !== '' });
  sleep(0.05);
}
