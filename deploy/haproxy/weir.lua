-- The script of haproxy.cfg next to it: asks weir about each request.
local weir = "http://127.0.0.1:8085/v1/decide" -- the proxy of that name in haproxy.cfg
local pass_when_unreachable = true -- false: 503
-- The longest authorization request. HAProxy's buffers hold 15 KB, and 2.6 dies of more than 101 headers in one.
local most_bytes, most_headers = 12 * 1024, 80

-- What HAProxy states itself, or what belongs to the client's connection or body.
local own = {
  ["host"] = true, ["connection"] = true, ["content-length"] = true, ["transfer-encoding"] = true, ["expect"] = true,
  ["trailer"] = true, ["te"] = true, ["upgrade"] = true,
  ["x-original-method"] = true, ["x-original-uri"] = true, ["x-original-host"] = true,
  ["x-forwarded-method"] = true, ["x-forwarded-uri"] = true, ["x-forwarded-host"] = true, ["x-forwarded-for"] = true,
}

local function authorization(txn)
  local headers = {}
  for name, values in pairs(txn.http:req_get_headers()) do
    if not own[name] then
      headers[name] = {}
      for _, value in pairs(values) do table.insert(headers[name], value) end
    end
  end
  local hops = txn.f:src()
  local before = txn.http:req_get_headers()["x-forwarded-for"]
  if before then
    local list = {}
    for i = 0, #before do table.insert(list, before[i]) end
    hops = table.concat(list, ", ") .. ", " .. hops
  end
  headers["x-original-method"] = { txn.f:method() }
  headers["x-original-uri"] = { txn.f:pathq() }
  headers["x-original-host"] = { txn.f:req_hdr("host") }
  headers["x-forwarded-for"] = { hops }
  return headers
end

local function fits(headers)
  local bytes, count = 0, 0
  for name, values in pairs(headers) do
    for _, value in ipairs(values) do
      bytes, count = bytes + #name + #value + 4, count + 1
    end
  end
  return bytes <= most_bytes and count <= most_headers
end

local function problem(status, title)
  return string.format('{"type":"about:blank","title":"%s","status":%d}', title, status)
end

local function refuse(txn, status, headers, body)
  local reply = txn:reply({ status = status, body = body })
  reply:add_header("Content-Type", "application/problem+json")
  for _, name in ipairs({ "Retry-After", "RateLimit", "RateLimit-Policy" }) do
    local values = headers[name:lower()]
    if values then reply:add_header(name, values[0]) end
  end
  txn:done(reply)
end

core.register_action("weir", { "http-req" }, function(txn)
  local headers = authorization(txn)
  if not fits(headers) then
    return refuse(txn, 431, {}, problem(431, "Request header fields too large"))
  end
  local answer = core.httpclient():get({ url = weir, headers = headers, timeout = 3000 })
  local kind = answer and answer.headers and answer.headers["content-type"]
  if answer and answer.status == 204 then
    for name, var in pairs({ ["ratelimit"] = "txn.ratelimit", ["ratelimit-policy"] = "txn.ratelimit_policy" }) do
      if answer.headers[name] then txn:set_var(var, answer.headers[name][0]) end
    end
  elseif kind and kind[0] == "application/problem+json" then
    refuse(txn, answer.status, answer.headers, answer.body)
  elseif answer and answer.status >= 400 and answer.status < 500 then -- HAProxy's own
    refuse(txn, answer.status, {}, problem(answer.status, "The authorization request is invalid"))
  elseif not pass_when_unreachable then
    refuse(txn, 503, {}, problem(503, "The rate limiter is unreachable"))
  end
end, 0)
