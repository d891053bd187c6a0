//go:build tools

// Package tools names the command that installs the chart in tests, so that
// go.mod and go.sum pin it and everything it is built from. It is a
// separate module, so that a change here does not rebuild Kubernetes.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
