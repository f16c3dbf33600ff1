// Package check holds what is written down for deployments against the types of
// those who will read it: the Kubernetes API and Compose. It is a module of its own,
// so that the gateway does not have their modules.
package check
