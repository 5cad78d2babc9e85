-- wrk posts events, or objects made of them, each with an id of its own. What it needs comes by the environment: a line
-- of BENCH_TARGETS is a cluster, the path that is posted to for it, and a token.
local targets, number, thread = {}, 0, 0
local template

function setup(thread_)
  thread = thread + 1
  thread_:set("number_of_thread", thread)
end

function init(_)
  for line in io.lines(os.getenv("BENCH_TARGETS")) do
    local name, path, token = line:match("^(%S+) (%S+) (%S+)$")
    targets[#targets + 1] = { name = name, path = path, headers = {
      ["Authorization"] = "Bearer " .. token,
      ["Content-Type"] = os.getenv("BENCH_TYPE"),
    } }
  end
  local file = io.open(os.getenv("BENCH_BODY"))
  template = file:read("*a")
  file:close()
  -- Threads begin at different targets, so that each sends for all of them.
  number = number_of_thread * 7919
end

local seed, apps = os.getenv("BENCH_SEED"), tonumber(os.getenv("BENCH_APPS"))

function request()
  number = number + 1
  local target = targets[number % #targets + 1]
  local app = math.floor(number / #targets) % apps
  local id = string.format("%s%02x%010x", seed, number_of_thread, number)
  -- The name of an object has 40 digits.
  local values = { ID = id, NAME = id .. id, CLUSTER = target.name, APP = string.format("app-%05d", app) }
  local body = template:gsub("@(%u+)@", values)
  return wrk.format("POST", target.path, target.headers, body)
end

function done(summary, latency, _)
  local errors = summary.errors
  io.write(string.format('{"requests":%d,"micros":%d,"refused":%d,"broken":%d,"p50":%d,"p99":%d}\n',
    summary.requests, summary.duration, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout, latency:percentile(50), latency:percentile(99)))
end
