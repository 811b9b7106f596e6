// Command karpentercrds prints Karpenter's custom resource definitions and those of its kwok provider, as JSON documents
// in one List, for kubectl.
//
// The provider itself is a program of Karpenter's module, built beside this one.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	kwok "sigs.k8s.io/karpenter/kwok/apis"
	"sigs.k8s.io/karpenter/pkg/apis"
)

func main() {
	list := map[string]any{"apiVersion": "v1", "kind": "List", "items": append(apis.CRDs, kwok.CRDs...)}
	if err := json.NewEncoder(os.Stdout).Encode(list); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
