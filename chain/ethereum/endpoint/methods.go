package endpoint

import (
	"bytes"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"sync"

	"go.yaml.in/yaml/v3"
)

//go:embed methods.yaml
var methodsFile []byte

// The methods that the gateway answers itself.
const (
	methodChainID     = "eth_chainId"
	methodVersion     = "net_version"
	methodAccounts    = "eth_accounts"
	methodCount       = "eth_getTransactionCount"
	methodSend        = "eth_sendRawTransaction"
	methodSendSync    = "eth_sendRawTransactionSync"
	methodSubscribe   = "eth_subscribe"
	methodUnsubscribe = "eth_unsubscribe"

	methodLogs    = "eth_getLogs"
	methodReceipt = "eth_getTransactionReceipt"
	notification  = "eth_subscription"
)

var ownMethods = []string{
	methodChainID, methodVersion, methodAccounts, methodCount, methodSend, methodSendSync, methodSubscribe, methodUnsubscribe,
}

// methods is the list of what is passed on and what is refused.
type methods struct {
	pass    map[string]bool
	refused map[string]string // by method: why, and what to do
}

// known are the methods that have a name in metrics.
func (m *methods) known() []string {
	all := slices.Concat(ownMethods, slices.Collect(maps.Keys(m.pass)), slices.Collect(maps.Keys(m.refused)))
	slices.Sort(all)
	return all
}

// knownMethods reads the list that is built in, once.
var knownMethods = sync.OnceValues(func() (*methods, error) { return readMethods(methodsFile) })

func readMethods(data []byte) (*methods, error) {
	var file struct {
		Pass    []string          `yaml:"pass"`
		Refused map[string]string `yaml:"refused"`
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil {
		return nil, fmt.Errorf("methods.yaml: %w", err)
	}
	m := &methods{pass: make(map[string]bool, len(file.Pass)), refused: file.Refused}
	for _, name := range file.Pass {
		if _, both := m.refused[name]; both || m.pass[name] || slices.Contains(ownMethods, name) {
			return nil, fmt.Errorf("methods.yaml: %s stands there twice, or is answered by the gateway itself", name)
		}
		m.pass[name] = true
	}
	return m, nil
}
