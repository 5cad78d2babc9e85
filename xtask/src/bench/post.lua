-- wrk posts events, each with an id and a chain-id of its own. What it needs comes by the environment.
local clusters, number, thread = {}, 0, 0
local template, path

function setup(thread_)
  thread = thread + 1
  thread_:set("number_of_thread", thread)
end

function init(_)
  for line in io.lines(os.getenv("BENCH_CLUSTERS")) do
    local name, token = line:match("^(%S+) (%S+)$")
    clusters[#clusters + 1] = { name = name, headers = {
      ["Authorization"] = "Bearer " .. token,
      ["Content-Type"] = "application/cloudevents+json",
    } }
  end
  local file = io.open(os.getenv("BENCH_EVENT"))
  template = file:read("*a")
  file:close()
  path = os.getenv("BENCH_PATH")
  -- Threads begin at different clusters, so that each sends for all of them.
  number = number_of_thread * 7919
end

local seed, streams = os.getenv("BENCH_SEED"), tonumber(os.getenv("BENCH_STREAMS"))

function request()
  number = number + 1
  local cluster = clusters[number % #clusters + 1]
  local app = math.floor(number / #clusters) % math.ceil(streams / #clusters)
  local id = string.format("%s%02x%010x", seed, number_of_thread, number)
  local values = { ID = id, CLUSTER = cluster.name, APP = string.format("app-%05d", app) }
  local body = template:gsub("@(%u+)@", values)
  return wrk.format("POST", path .. cluster.name, cluster.headers, body)
end

function done(summary, _, _)
  local errors = summary.errors
  io.write(string.format('{"requests":%d,"micros":%d,"refused":%d,"broken":%d}\n', summary.requests,
    summary.duration, errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
