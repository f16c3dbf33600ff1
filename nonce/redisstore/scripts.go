package redisstore

import (
	"crypto/sha1" // #nosec G505 -- Redis names scripts by it, and nothing is protected by it
	_ "embed"
	"encoding/hex"
	"strings"
)

var (
	//go:embed lua/head.lua
	headLua string
	//go:embed lua/commit.lua
	commitLua string
	//go:embed lua/check.lua
	checkLua string
	//go:embed lua/believe.lua
	believeLua string
	//go:embed lua/serve.lua
	serveLua string
	//go:embed lua/takeover.lua
	takeOverLua string
	//go:embed lua/read.lua
	readLua string
	//go:embed lua/seed.lua
	seedLua string
	//go:embed lua/forget.lua
	forgetLua string
	//go:embed lua/summary.lua
	summaryLua string
	//go:embed lua/scan.lua
	scanLua string
	//go:embed lua/settled.lua
	settledLua string
	//go:embed lua/event.lua
	eventLua string
	//go:embed lua/trim.lua
	trimLua string
	//go:embed lua/dead.lua
	deadLua string
	//go:embed lua/replay.lua
	replayLua string
	//go:embed lua/probe.lua
	probeLua string
)

// What a script says of itself in its first line. A server that may not write, or
// has no memory left, refuses a script that does not say otherwise before its first
// command, and not in its middle.
const (
	writes    = "#!lua\n"
	readsOnly = "#!lua flags=no-writes\n"
	frees     = "#!lua flags=allow-oom\n"
)

// script is a Lua script and its name in the server's cache.
type script struct{ text, sha string }

func newScript(flags string, parts ...string) *script {
	text := flags + headLua + strings.Join(parts, "")
	sum := sha1.Sum([]byte(text)) // #nosec G401 -- Redis names scripts by it, and nothing is protected by it
	return &script{text: text, sha: hex.EncodeToString(sum[:])}
}

var (
	commitScript   = newScript(writes, commitLua)
	checkScript    = newScript(readsOnly, checkLua)
	readScript     = newScript(readsOnly, believeLua, readLua)
	serveScript    = newScript(writes, believeLua, serveLua, readLua)
	takeOverScript = newScript(writes, takeOverLua, readLua)
	seedScript     = newScript(writes, seedLua)
	forgetScript   = newScript(frees, forgetLua)
	summaryScript  = newScript(readsOnly, summaryLua)
	scanScript     = newScript(readsOnly, scanLua)
	settledScript  = newScript(frees, settledLua)
	trimScript     = newScript(frees, eventLua, trimLua)
	deadScript     = newScript(frees, eventLua, deadLua)
	replayScript   = newScript(frees, replayLua)
	probeScript    = newScript(writes, probeLua)
)
