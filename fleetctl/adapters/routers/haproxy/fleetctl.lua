-- Traffic, inside HAProxy: fencing, the weight's lease and the shadow tee. Never decides a weight; the guard only takes one home.
-- Loaded by `lua-load` into one thread, so a command runs whole before the next one starts: that is the compare-and-set.
-- Arguments: map folder, port of the shadow collector (0: no tee), seconds that copies go on unasked (180, as a weight's lease).

local folder, collector, copies_s = ...
if not (core.queue and folder) then -- both came with 2.8, or the map folder is missing behind the file's name
  error("fleetctl.lua needs HAProxy 2.8 or newer and its map folder: lua-load FILE FOLDER PORT. Without it: fence: single_writer", 0)
end
collector = tonumber(collector) or 0
local COPIES_MS = (tonumber(copies_s) or 180) * 1000 -- copies that nobody asks for any more end

local WEIGHTS, FENCES = folder .. "/weight.map", folder .. "/fence.map"
local SHADOWS, GUARDED = folder .. "/shadow.map", folder .. "/guard.map"
local FULL_BP, QUEUE, GUARD_MS, SEND_MS = 10000, 64, 500, 5000
local BODY_MAX = 14000
local HOME_STEP = 1 << 20 -- as fleetctl.domain.home.HOME_TOKEN_STEP

local weights = Map.new(WEIGHTS, Map._str)
local state = {} -- cell -> {cap, token, lease}; the weight itself lives in the map that routes

local function lines(path)
  local file = io.open(path, "r")
  local found = {}
  if file then
    for line in file:lines() do
      local cell, rest = line:match("^([a-z0-9-]+) (%S+)$")
      if cell then found[cell] = rest end
    end
    file:close()
  end
  return found
end

local function natural(text)
  if text and #text <= 16 and text:match("^%d+$") then return math.tointeger(tonumber(text)) end
  return nil
end

local function now_ms()
  local now = core.now()
  return now.sec * 1000 + now.usec // 1000
end

local function weight(cell)
  return math.tointeger(tonumber(weights:lookup(cell) or "0")) or 0
end

local function taken_home(mark, lease)
  -- what was left of the weight with this lease when it was taken home (nil: it never was), and the token that was taken then
  local of, bp, token = (mark or ""):match("^(%d+):?(%d*):?(%d*)$")
  return of == tostring(lease) and (natural(bp) or 0) or nil, natural(token) or 0
end

local function restore()
  local fences, guarded = lines(FENCES), lines(GUARDED)
  for cell, bp in pairs(lines(WEIGHTS)) do
    local cap, token, lease = (fences[cell] or ""):match("^(%d+):(%d+):(%d+)$")
    local s = { cap = natural(cap) or 0, token = natural(token) or 0, lease = natural(lease) or 0 }
    state[cell] = s
    local value = natural(bp)
    local left, taken = taken_home(guarded[cell], s.lease)
    local most = math.min(s.cap, left or s.cap)
    s.token = math.max(s.token, taken) -- whoever was before it finds itself stale after a restart too
    if not value or value > most then
      -- never more on the target than was allowed, or than the guard had left there
      core.set_map(WEIGHTS, cell, tostring(math.min(value or 0, most)))
    end
  end
end

core.register_init(restore)

-- commands on the admin socket -------------------------------------------------------------------------------------------------

local function shown(cell)
  local s = state[cell]
  return string.format("ok %d %d %d %d", weight(cell), s.cap, s.token, s.lease)
end

local function command(name, run)
  core.register_cli({ "fleetctl", name }, "fleetctl " .. name, function(applet, _, _, ...)
    local good, answer = pcall(run, ...)
    applet:send((good and answer or "bad internal " .. tostring(answer):gsub("%c", " ")) .. "\n")
  end)
end

command("read", function(cell)
  return state[cell] and shown(cell) or "unknown"
end)

command("fence", function(cell, token)
  local s, wanted = state[cell], natural(token)
  if not s then return "unknown" end
  if not wanted then return "bad token" end
  if wanted <= s.token then return "stale " .. s.token end
  s.token = wanted
  return shown(cell)
end)

command("set", function(cell, bp, cap, token, lease)
  local s = state[cell]
  if not s then return "unknown" end
  local b, c, t, l = natural(bp), natural(cap), natural(token), natural(lease)
  if not (b and c and t and l) then return "bad number" end
  if c > FULL_BP or b > c then return "bad range" end
  if t ~= s.token then return "stale " .. s.token end
  core.set_map(WEIGHTS, cell, tostring(b))
  s.cap, s.lease = c, l
  return shown(cell)
end)

local function keep_home(cell, s, bp)
  -- a restart does not bring back what was taken home
  local file = io.open(GUARDED, "a")
  if file then
    file:write(cell, " ", s.lease, ":", bp, ":", s.token, "\n")
    file:close()
  end
end

local samples = {} -- for the shadow tee, see below

local function hush(cell)
  samples[cell] = nil
  core.set_map(SHADOWS, cell, "0")
end

command("home", function(cell)
  -- for a person without fleetctl: weight 0 by a token so high that every live controller finds itself stale, and no copies either
  local s = state[cell]
  if not s then return "unknown" end
  s.token = s.token + HOME_STEP
  core.set_map(WEIGHTS, cell, "0")
  hush(cell)
  keep_home(cell, s, 0)
  return shown(cell)
end)

-- the guard ---------------------------------------------------------------------------------------------------------------------

local held = {}

local function source_ready(cell)
  -- how many servers of the source answered their last health check, a real completion, and how many there are. A backend with a name
  -- of its own is not known here: such a cell is taken home by `fleetctl guard`
  local backend, ready, total = core.backends[cell .. "_baseline"], 0, 0
  for _, server in pairs(backend and backend.servers or {}) do
    local stats = server:get_stats()
    local check = (stats.check_status or ""):gsub("^%* ", "")
    total = total + 1
    if (stats.status or ""):match("^UP") and check == "L7OK" then ready = ready + 1 end
  end
  return ready, total
end

local function guard_cell(cell, s)
  local bp = weight(cell)
  if bp <= 0 or s.lease > now_ms() then
    held[cell] = nil
    return
  end
  local ready, total = source_ready(cell)
  local away = total - ready -- no more go home than the source's proven servers can take
  local stays = total > 0 and math.min(bp, (FULL_BP * away + total // 2) // total) or bp
  if stays < bp then
    s.token = s.token + 1 -- a holder that was stopped before this cannot write after it
    core.set_map(WEIGHTS, cell, tostring(stays))
    keep_home(cell, s, stays)
    core.log(core.warning, string.format("guard %s home: the lease of %d bp has lapsed, %d stay", cell, bp, stays))
  end
  if stays == 0 then
    held[cell] = nil
  elseif held[cell] ~= s.lease then
    held[cell] = s.lease
    local text = "guard %s holds %d bp: its lease has lapsed and %d of %d source servers are proven"
    core.log(core.alert, string.format(text, cell, stays, ready, total))
  end
end

core.register_task(function()
  while true do
    core.msleep(GUARD_MS)
    for cell, s in pairs(state) do
      local good, why = pcall(guard_cell, cell, s)
      if not good then core.log(core.alert, "guard " .. cell .. " failed: " .. tostring(why):gsub("%c", " ")) end
    end
  end
end)

-- the shadow tee: copies beside the client's path, bounded, drops and counts --------------------------------------------------------

-- samples: cell -> {rate per ms, credit, at, ends; share, part in bp}: both credits must hold a whole copy
local tee = { sent = 0, dropped = 0, failed = 0, refused = 0 }
local waiting = core.queue()

command("shadow", function(cell, rate, share)
  local per_s, most = natural(rate), natural(share or tostring(FULL_BP))
  if not state[cell] then return "unknown" end
  if not per_s or per_s > 1000000 then return "bad rate" end
  if not most or most > FULL_BP then return "bad share" end
  local old = samples[cell]
  if per_s > 0 and most > 0 then
    -- told again and again while the phase lasts: what was copied already still counts
    local sample = old or { credit = 1, at = now_ms(), part = 0 }
    sample.rate, sample.share, sample.ends = per_s / 1000000, most, now_ms() + COPIES_MS
    samples[cell] = sample
    core.set_map(SHADOWS, cell, collector > 0 and tostring(per_s) or "0")
  else
    hush(cell)
  end
  return "ok"
end)

command("tee", function()
  return string.format("ok %d %d %d %d %d", tee.sent, tee.dropped, tee.failed, tee.refused, waiting:size())
end)

core.register_action("fleetctl_sample", { "http-req" }, function(txn)
  local sample = samples[txn:get_var("txn.c")]
  if not sample then return end
  local now = now_ms()
  if now > sample.ends then return hush(txn:get_var("txn.c")) end
  sample.credit = math.min(1, sample.credit + (now - sample.at) * sample.rate)
  sample.at = now
  sample.part = math.min(FULL_BP, sample.part + sample.share)
  if sample.credit < 1 or sample.part < FULL_BP then return end
  sample.credit, sample.part = sample.credit - 1, sample.part - FULL_BP
  if waiting:size() >= QUEUE then
    tee.dropped = tee.dropped + 1
  else
    txn:set_var("txn.tee", true)
  end
end)

core.register_action("fleetctl_tee", { "http-req" }, function(txn)
  local length = natural(txn.sf:req_fhdr("content-length"))
  local body = txn.f:req_body()
  if not body or not length or length > BODY_MAX or #body ~= length then
    tee.dropped = tee.dropped + 1
  elseif body:find('"tools"%s*:') or body:find('"functions"%s*:') then
    tee.refused = tee.refused + 1 -- a call that may act on the world is not repeated
  else
    waiting:push({ cell = txn:get_var("txn.c"), body = body })
  end
end)

if collector > 0 then
  core.register_task(function()
    while true do
      local copy = waiting:pop_wait()
      local good, answer = pcall(function()
        return core.httpclient():post({
          url = string.format("http://127.0.0.1:%d/shadow/%s", collector, copy.cell),
          headers = { ["content-type"] = { "application/json" }, ["content-length"] = { tostring(#copy.body) } },
          body = copy.body,
          timeout = SEND_MS,
        })
      end)
      if good and answer and answer.status and answer.status >= 200 and answer.status < 300 then
        tee.sent = tee.sent + 1
      else
        tee.failed = tee.failed + 1
      end
    end
  end)
end
