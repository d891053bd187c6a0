// Works on objects with OpenKruise's typed client, as a controller does, and decodes answers strictly.
//
// JSON values {"object": ..., "field": ..., "strict": ...} in; {"error": ..., "warnings": ...} out. Each object is
// created, watched, updated, written back as it was read, and deleted. The field names the part of the status to wait
// for. The warnings are the API server's, such as those about fields that it does not know.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"reflect"
	"slices"
	"time"

	kruise "github.com/openkruise/kruise-api/client/clientset/versioned"
	"github.com/openkruise/kruise-api/client/clientset/versioned/scheme"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"
)

const mark = "peers.example.com/updated"

type question struct {
	Object json.RawMessage `json:"object"`
	Field  string          `json:"field"`
	Strict bool            `json:"strict"`
}

type answer struct {
	Error    string   `json:"error"`
	Warnings []string `json:"warnings"`
}

type warnings struct{ seen []string }

func (found *warnings) HandleWarningHeader(_ int, _ string, text string) {
	if !slices.Contains(found.seen, text) {
		found.seen = append(found.seen, text)
	}
}

// typed is the common interface of the generated clients.
type typed[P, L runtime.Object] interface {
	Create(context.Context, P, metav1.CreateOptions) (P, error)
	Update(context.Context, P, metav1.UpdateOptions) (P, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
	Get(context.Context, string, metav1.GetOptions) (P, error)
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

type object[T any] interface {
	*T
	metav1.Object
	runtime.Object
}

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		log.Fatal(err)
	}
	config.QPS = -1
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var asked question
		if err := in.Decode(&asked); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		scheme.Codecs = serializer.NewCodecFactory(scheme.Scheme)
		if asked.Strict {
			scheme.Codecs = serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict)
		}
		found := warnings{seen: []string{}}
		config.WarningHandler = &found
		client, err := kruise.NewForConfig(config)
		if err != nil {
			log.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		err = try(ctx, client, asked)
		cancel()
		told := answer{Warnings: found.seen}
		if err != nil {
			told.Error = err.Error()
		}
		if err := out.Encode(told); err != nil {
			log.Fatal(err)
		}
	}
}

func try(ctx context.Context, client *kruise.Clientset, asked question) error {
	var known metav1.PartialObjectMetadata
	if err := json.Unmarshal(asked.Object, &known); err != nil {
		return err
	}
	alpha, beta, policy, ns := client.AppsV1alpha1(), client.AppsV1beta1(), client.PolicyV1alpha1(), known.Namespace
	switch known.APIVersion + " " + known.Kind {
	case "apps.kruise.io/v1alpha1 AdvancedCronJob":
		return work(ctx, alpha.AdvancedCronJobs(ns), asked)
	case "apps.kruise.io/v1alpha1 BroadcastJob":
		return work(ctx, alpha.BroadcastJobs(ns), asked)
	case "apps.kruise.io/v1alpha1 CloneSet":
		return work(ctx, alpha.CloneSets(ns), asked)
	case "apps.kruise.io/v1alpha1 ContainerRecreateRequest":
		return work(ctx, alpha.ContainerRecreateRequests(ns), asked)
	case "apps.kruise.io/v1alpha1 DaemonSet":
		return work(ctx, alpha.DaemonSets(ns), asked)
	case "apps.kruise.io/v1alpha1 EphemeralJob":
		return work(ctx, alpha.EphemeralJobs(ns), asked)
	case "apps.kruise.io/v1alpha1 ImageListPullJob":
		return work(ctx, alpha.ImageListPullJobs(ns), asked)
	case "apps.kruise.io/v1alpha1 ImagePullJob":
		return work(ctx, alpha.ImagePullJobs(ns), asked)
	case "apps.kruise.io/v1alpha1 NodeImage":
		return work(ctx, alpha.NodeImages(), asked)
	case "apps.kruise.io/v1alpha1 NodePodProbe":
		return work(ctx, alpha.NodePodProbes(), asked)
	case "apps.kruise.io/v1alpha1 PersistentPodState":
		return work(ctx, alpha.PersistentPodStates(ns), asked)
	case "apps.kruise.io/v1alpha1 PodProbeMarker":
		return work(ctx, alpha.PodProbeMarkers(ns), asked)
	case "apps.kruise.io/v1alpha1 ResourceDistribution":
		return work(ctx, alpha.ResourceDistributions(), asked)
	case "apps.kruise.io/v1alpha1 SidecarSet":
		return work(ctx, alpha.SidecarSets(), asked)
	case "apps.kruise.io/v1alpha1 StatefulSet":
		return work(ctx, alpha.StatefulSets(ns), asked)
	case "apps.kruise.io/v1alpha1 UnitedDeployment":
		return work(ctx, alpha.UnitedDeployments(ns), asked)
	case "apps.kruise.io/v1alpha1 WorkloadSpread":
		return work(ctx, alpha.WorkloadSpreads(ns), asked)
	case "apps.kruise.io/v1beta1 StatefulSet":
		return work(ctx, beta.StatefulSets(ns), asked)
	case "policy.kruise.io/v1alpha1 PodUnavailableBudget":
		return work(ctx, policy.PodUnavailableBudgets(ns), asked)
	}
	return fmt.Errorf("the client has no %s %s", known.APIVersion, known.Kind)
}

func work[T any, P object[T], L runtime.Object](ctx context.Context, client typed[P, L], asked question) error {
	var wanted P = new(T)
	decoder := json.NewDecoder(bytes.NewReader(asked.Object))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(wanted); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	name := wanted.GetName()
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	since := any(list).(metav1.ListInterface).GetResourceVersion()
	watched, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: since, FieldSelector: "metadata.name=" + name})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer watched.Stop()
	_, err = client.Create(ctx, wanted, metav1.CreateOptions{FieldValidation: metav1.FieldValidationWarn})
	// The manager creates one NodeImage and NodePodProbe for each node.
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create: %w", err)
	}
	marked := func(found P) {
		annotations := found.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[mark] = "yes"
		found.SetAnnotations(annotations)
	}
	if _, err := update(ctx, client, name, marked); err != nil {
		return fmt.Errorf("update: %w", err)
	}
	if err := settled(ctx, watched, asked.Field); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	before, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get: %w", err)
	}
	after, err := update(ctx, client, name, func(P) {})
	if err != nil {
		return fmt.Errorf("write back: %w", err)
	}
	if before.GetGeneration() != after.GetGeneration() {
		return fmt.Errorf("writing the object back changed its spec: %s became %s", text(before), text(after))
	}
	if err := client.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

func update[T any, P object[T], L runtime.Object](
	ctx context.Context, client typed[P, L], name string, change func(P),
) (written P, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		found, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(found)
		written, err = client.Update(ctx, found, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationWarn})
		return err
	})
	return written, err
}

// settled reads events until one has the update and this field of the status.
func settled(ctx context.Context, watched watch.Interface, field string) error {
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("status.%s is not set in time", field)
		case event, open := <-watched.ResultChan():
			if !open {
				return errors.New("closed")
			}
			if event.Type == watch.Error {
				return apierrors.FromObject(event.Object)
			}
			found, err := runtime.DefaultUnstructuredConverter.ToUnstructured(event.Object)
			if err != nil {
				return err
			}
			annotations := event.Object.(metav1.Object).GetAnnotations()
			status, _ := found["status"].(map[string]any)
			value := reflect.ValueOf(status[field])
			if annotations[mark] == "yes" && value.IsValid() && !value.IsZero() {
				return nil
			}
		}
	}
}

func text(object any) string {
	written, err := json.Marshal(object)
	if err != nil {
		return err.Error()
	}
	return string(written)
}
