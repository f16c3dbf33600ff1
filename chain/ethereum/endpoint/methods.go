package endpoint

import (
	"bytes"
	_ "embed"
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

// knownMethods is the list that is built in. A mistake in it is one of the program: it panics.
var knownMethods = sync.OnceValue(func() *methods {
	var file struct {
		Pass    []string          `yaml:"pass"`
		Refused map[string]string `yaml:"refused"`
	}
	dec := yaml.NewDecoder(bytes.NewReader(methodsFile))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil {
		panic("methods.yaml: " + err.Error())
	}
	m := &methods{pass: make(map[string]bool, len(file.Pass)), refused: file.Refused}
	for _, name := range file.Pass {
		if _, both := m.refused[name]; both || m.pass[name] || slices.Contains(ownMethods, name) {
			panic("methods.yaml: " + name + " stands there twice, or is answered by the gateway itself")
		}
		m.pass[name] = true
	}
	return m
})
