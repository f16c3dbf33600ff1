package redisdb

import (
	"strconv"
	"strings"
)

// Server is what one server said of itself. RunID is another one after each start;
// ReplicationID stays with the data through a planned failover, and is another one
// after a restart without data, or where a replica was promoted.
type Server struct {
	Addr          string
	RunID         string
	ReplicationID string // master_replid
	Role          string // master or slave
	Mode          string // standalone, cluster or sentinel
	Version       string
	Replicas      int    // that are connected
	AOF           bool   // it writes an append-only file
	Fsync         string // always, everysec or no; "": no append-only file, or it may not be asked
	MaxMemory     int64  // bytes; 0: no bound
	Policy        string // maxmemory-policy

	loading bool
}

// parseInfo reads the answer to INFO.
func parseInfo(text string) Server {
	said := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			said[name] = value
		}
	}
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(said[name], 10, 64)
		return n
	}
	return Server{
		RunID: said["run_id"], ReplicationID: said["master_replid"], Role: said["role"], Mode: said["redis_mode"], Version: said["redis_version"],
		Replicas: int(number("connected_slaves")), AOF: number("aof_enabled") == 1,
		MaxMemory: number("maxmemory"), Policy: said["maxmemory_policy"], loading: number("loading") == 1,
	}
}

// oldest is the first version that is supported.
const oldest = "7.0"

// tooOld reports whether a version is below oldest, or none at all.
func tooOld(version string) bool {
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	return err != nil || n < 7
}
