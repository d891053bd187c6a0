//go:build tools

// Package tools names the command that installs the chart in tests, so that
// go.mod and go.sum pin it and everything it is built from. It has a module of
// its own: a change here must not rebuild Kubernetes.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
