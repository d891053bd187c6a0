// Answers of Kubernetes' own libraries, recorded as test data: reads a file of cases and writes each case's "out" anew.
//
//	cd tests/cluster && go run ../data/apimachinery/main.go ../data/apimachinery/*.json
package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/rand"
	syntax "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	hashutil "k8s.io/kubernetes/pkg/util/hash"
	kjson "sigs.k8s.io/json"
)

type object = map[string]any

func quantity(in json.RawMessage) any {
	var text string
	must(json.Unmarshal(in, &text))
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return nil
	}
	rounded := q.DeepCopy()
	out := object{"text": q.String(), "format": q.Format, "value": q.Value(), "milli": q.MilliValue()}
	rounded.RoundUp(resource.Milli)
	out["roundedToMilli"] = rounded.String()
	return out
}

func sum(in json.RawMessage) any {
	var texts [2]string
	must(json.Unmarshal(in, &texts))
	a, b := resource.MustParse(texts[0]), resource.MustParse(texts[1])
	plus, minus := a.DeepCopy(), a.DeepCopy()
	plus.Add(b)
	minus.Sub(b)
	return object{"plus": plus.String(), "minus": minus.String(), "compare": a.Cmp(b)}
}

func selector(in json.RawMessage) any {
	var c struct {
		Selector metav1.LabelSelector
		Labels   []labels.Set
	}
	must(json.Unmarshal(in, &c))
	out := object{}
	if errs := validation.ValidateLabelSelector(&c.Selector, validation.LabelSelectorValidationOptions{}, field.NewPath("spec", "selector")); len(errs) > 0 {
		out["validation"] = errs.ToAggregate().Error()
	}
	compiled, err := metav1.LabelSelectorAsSelector(&c.Selector)
	if err != nil {
		out["error"] = err.Error()
		return out
	}
	matches := []bool{}
	for _, set := range c.Labels {
		matches = append(matches, compiled.Matches(set))
	}
	out["matches"] = matches
	return out
}

func query(in json.RawMessage) any {
	var c struct {
		Query  string
		Labels []labels.Set
	}
	must(json.Unmarshal(in, &c))
	parsed, err := labels.Parse(c.Query)
	if err != nil {
		return nil
	}
	matches := []bool{}
	for _, set := range c.Labels {
		matches = append(matches, parsed.Matches(set))
	}
	return object{"matches": matches}
}

func name(in json.RawMessage) any {
	var text string
	must(json.Unmarshal(in, &text))
	out := object{}
	for rule, check := range map[string]func(string) []string{
		"qualifiedName": syntax.IsQualifiedName, "labelValue": syntax.IsValidLabelValue,
		"dns1123Label": syntax.IsDNS1123Label, "dns1123Subdomain": syntax.IsDNS1123Subdomain,
		"dns1035Label": syntax.IsDNS1035Label, "configMapKey": syntax.IsConfigMapKey,
		"envVarName": syntax.IsRelaxedEnvVarName, "portName": syntax.IsValidPortName, "percent": syntax.IsValidPercent,
	} {
		if messages := check(text); len(messages) > 0 {
			out[rule] = messages
		}
	}
	return out
}

func percent(in json.RawMessage) any {
	var c struct {
		Value   intstr.IntOrString
		Total   int
		RoundUp bool
	}
	must(json.Unmarshal(in, &c))
	scaled, err := intstr.GetScaledValueFromIntOrPercent(&c.Value, c.Total, c.RoundUp)
	if err != nil {
		return nil
	}
	return scaled
}

// container prints a core Container as the hashes see it; null for one that cannot be decoded.
func container(in json.RawMessage) any {
	var c corev1.Container
	if err := kjson.UnmarshalCaseSensitivePreserveInts(in, &c); err != nil {
		return nil
	}
	out, err := json.Marshal(c)
	must(err)
	return string(out)
}

// template hashes a Pod template as controllers do: before any collision, and after the first.
func template(in json.RawMessage) any {
	var t corev1.PodTemplateSpec
	must(kjson.UnmarshalCaseSensitivePreserveInts(in, &t))
	hasher := fnv.New32a()
	hashutil.DeepHashObject(hasher, t)
	first := rand.SafeEncodeString(fmt.Sprint(hasher.Sum32()))
	count := make([]byte, 8)
	binary.LittleEndian.PutUint32(count, 1)
	hasher.Write(count)
	return []string{first, rand.SafeEncodeString(fmt.Sprint(hasher.Sum32()))}
}

func main() {
	kinds := map[string]func(json.RawMessage) any{
		"quantities": quantity, "sums": sum, "selectors": selector, "queries": query, "names": name,
		"percents": percent, "containers": container,
		"templates": template,
	}
	for _, path := range os.Args[1:] {
		var cases []struct {
			In  json.RawMessage `json:"in"`
			Out any             `json:"out"`
		}
		text, err := os.ReadFile(path)
		must(err)
		must(json.Unmarshal(text, &cases))
		answer := kinds[strings.TrimSuffix(filepath.Base(path), ".json")]
		for i := range cases {
			cases[i].Out = answer(cases[i].In)
		}
		var lines bytes.Buffer
		encoder := json.NewEncoder(&lines)
		encoder.SetEscapeHTML(false)
		for _, c := range cases {
			must(encoder.Encode(c))
		}
		joined := strings.Join(strings.Split(strings.TrimSpace(lines.String()), "\n"), ",\n")
		must(os.WriteFile(path, []byte("[\n"+joined+"\n]\n"), 0o644))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
