package endpoint

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"noncegate/chain/ethereum/rawtx"
	"noncegate/internal/relay"
	"noncegate/ws"
)

// Prefix is where the paths of all endpoints begin; the number of the chain follows.
const Prefix = "/eth/"

// Bounds are those of connections and requests, for a ws.Server whose connections may have
// so many requests in flight: a frame may hold the largest transaction that is decoded, an
// answer is as large as a node's may be, and the calls that wait for nodes have slots of
// their own.
func Bounds(inflight int) relay.Config {
	const maxInflight = 1024
	return relay.Config{MaxWaitingBytes: 256 << 20, RoomConfig: ws.RoomConfig{
		Bounds: ws.Bounds{
			MaxInflight: inflight, MaxInflightTotal: max(maxInflight, 4*inflight), MaxMessageBytes: 2*rawtx.MaxBlobSize + 64<<10,
		},
		MaxAnswerBytes: 16<<20 + 64<<10,
	}}
}

// Handler serves endpoints on connections and requests of a ws.Server, each on its Path,
// and says of all other paths below Prefix what there is. An error names the bound that
// is wrong.
func Handler(server *ws.Server, bounds relay.Config, endpoints ...*Endpoint) (http.Handler, error) {
	mux := http.NewServeMux()
	var paths []string
	for _, e := range endpoints {
		h, err := relay.New(server, e, bounds)
		if err != nil {
			return nil, fmt.Errorf("the Ethereum endpoint %s: %w", e.Path(), err)
		}
		mux.Handle(e.Path(), h)
		mux.Handle(e.Path()+"/{$}", h)
		paths = append(paths, e.Path())
	}
	slices.Sort(paths)
	for _, e := range endpoints {
		e.paths = paths
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		if len(paths) == 0 {
			http.Error(w, "this gateway has no chain (--chain), so there is no Ethereum endpoint", http.StatusNotFound)
			return
		}
		http.Error(w, "this gateway has no such chain (--chain); it has "+strings.Join(paths, ", "), http.StatusNotFound)
	})
	return mux, nil
}
