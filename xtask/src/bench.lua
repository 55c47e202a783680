-- Requests of many users: the first argument is the kind of request, the second a file with the users.
-- The benchmark reads the last line of the output.

local kind, users = nil, {}

function init(args)
  kind = args[1]
  if args[2] then
    for line in io.lines(args[2]) do
      local token, first, last, server, destination = line:match("(%S+) (%S+) (%S+) (%S+) (%S+)")
      users[#users + 1] = {
        headers = { Authorization = "Bearer " .. token, ["Content-Type"] = "application/json" },
        first = tonumber(first), last = tonumber(last),
        body = '{"remote_server_id":' .. server .. ',"backup_destination_id":' .. destination ..
          ',"label":"made by the benchmark","type":"files","source_path":"/srv","frequency":"daily",' ..
          '"time_to_run_at":"03:00"}',
      }
    end
  end
  math.randomseed(os.time() + tonumber(tostring({}):match("0x(%x+)"), 16) % 100000)
end

local make = {
  empty = function() return wrk.format("GET", "/") end,
  list = function(user) return wrk.format("GET", "/api/backup-tasks", user.headers) end,
  show = function(user)
    return wrk.format("GET", "/api/backup-tasks/" .. math.random(user.first, user.last), user.headers)
  end,
  create = function(user) return wrk.format("POST", "/api/backup-tasks", user.headers, user.body) end,
  upcoming = function(user) return wrk.format("GET", "/api/backup-tasks/upcoming", user.headers) end,
}

-- A typical mix: mostly reads, some writes.
function make.mixed(user)
  local dice = math.random(100)
  if dice <= 60 then return make.show(user) end
  if dice <= 90 then return make.list(user) end
  if dice <= 98 then return make.upcoming(user) end
  return make.create(user)
end

function request()
  return make[kind](#users > 0 and users[math.random(#users)] or nil)
end

function done(summary, latency)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format("RESULT %.1f %.3f %.3f %.3f %d\n", summary.requests / (summary.duration / 1e6),
    latency:percentile(50) / 1000, latency:percentile(99) / 1000, latency.max / 1000, failed))
end
