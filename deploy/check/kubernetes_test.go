package check

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// documents splits a file of YAML.
func documents(t *testing.T, file string) [][]byte {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	return bytes.Split(data, []byte("\n---\n"))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// strict decodes a document as what it says it is; a field that is not there in the
// API is an error.
func strict(t *testing.T, file string, doc []byte) any {
	t.Helper()
	var head struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal(doc, &head); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	into, ok := map[string]any{
		"v1 Namespace": new(corev1.Namespace), "v1 Service": new(corev1.Service), "v1 ConfigMap": new(corev1.ConfigMap),
		"v1 Secret": new(corev1.Secret), "v1 ServiceAccount": new(corev1.ServiceAccount),
		"apps/v1 StatefulSet": new(appsv1.StatefulSet), "policy/v1 PodDisruptionBudget": new(policyv1.PodDisruptionBudget),
		"networking.k8s.io/v1 NetworkPolicy": new(networkingv1.NetworkPolicy),
	}[head.APIVersion+" "+head.Kind]
	if !ok {
		t.Fatalf("%s: nobody here knows %s %s", file, head.APIVersion, head.Kind)
	}
	if err := yaml.UnmarshalStrict(doc, into); err != nil {
		t.Errorf("%s: %s: %v", file, head.Kind, err)
	}
	return into
}

func TestTheKubernetesManifestsAreOfTheAPI(t *testing.T) {
	files, err := filepath.Glob("../kubernetes/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	kinds := map[string]bool{}
	for _, file := range files {
		for _, doc := range documents(t, file) {
			switch v := strict(t, file, doc).(type) {
			case *appsv1.StatefulSet:
				kinds["StatefulSet"] = true
				statefulSet(t, v)
			case *networkingv1.NetworkPolicy:
				kinds["NetworkPolicy"] = true
				egress(t, v)
			case *policyv1.PodDisruptionBudget:
				kinds["PodDisruptionBudget"] = true
				if v.Spec.MinAvailable == nil && v.Spec.MaxUnavailable == nil {
					t.Error("the disruption budget allows everything")
				}
			}
		}
	}
	if !kinds["StatefulSet"] || !kinds["PodDisruptionBudget"] || !kinds["NetworkPolicy"] {
		t.Errorf("found only %v", kinds)
	}
}

// egress looks at what the pods may reach: each port is named, and those that they need are there.
func egress(t *testing.T, p *networkingv1.NetworkPolicy) {
	if !slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
		t.Error("the pods may reach anything")
	}
	open := map[int]bool{}
	for _, rule := range p.Spec.Egress {
		if len(rule.Ports) == 0 {
			t.Error("a rule opens all ports")
		}
		for _, port := range rule.Ports {
			open[port.Port.IntValue()] = true
		}
	}
	for _, need := range []int{53, 8080, 5432, 6379, 443} {
		if !open[need] {
			t.Errorf("port %d cannot be reached", need)
		}
	}
}

// statefulSet looks at what a gateway needs of its pod.
func statefulSet(t *testing.T, s *appsv1.StatefulSet) {
	pod := s.Spec.Template.Spec
	for k, v := range s.Spec.Selector.MatchLabels {
		if s.Spec.Template.Labels[k] != v {
			t.Errorf("the pods do not have the label %s=%s that selects them", k, v)
		}
	}
	c := pod.Containers[0]
	// --drain-timeout is 20 s, and steps of the stop have 2 s each where it is used up.
	if g := pod.TerminationGracePeriodSeconds; g == nil || c.Lifecycle != nil && c.Lifecycle.PreStop != nil && c.Lifecycle.PreStop.Sleep != nil && *g < c.Lifecycle.PreStop.Sleep.Seconds+30 {
		t.Error("a pod is killed before its drain can end")
	}
	// A service noncegate would else set NONCEGATE_PORT and others.
	if pod.EnableServiceLinks == nil || *pod.EnableServiceLinks {
		t.Error("variables for services get among the settings")
	}
	// Nodes wait for 5 minutes for the one that migrates, and answer no probe meanwhile.
	if p := c.StartupProbe; p != nil && p.PeriodSeconds*p.FailureThreshold <= 300 {
		t.Errorf("a pod that waits for a migration is killed after %d s", p.PeriodSeconds*p.FailureThreshold)
	}
	if c.ReadinessProbe == nil || c.LivenessProbe == nil || c.StartupProbe == nil || c.Lifecycle == nil || c.Lifecycle.PreStop == nil {
		t.Error("probes or preStop are missing")
	}
	if sc := c.SecurityContext; sc == nil || sc.ReadOnlyRootFilesystem == nil || !*sc.ReadOnlyRootFilesystem || sc.AllowPrivilegeEscalation == nil || *sc.AllowPrivilegeEscalation {
		t.Error("the container may do more than it needs")
	}
	ports := map[string]bool{}
	for _, p := range c.Ports {
		ports[p.Name] = true
	}
	for _, probe := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe, c.StartupProbe} {
		if probe != nil && !ports[probe.HTTPGet.Port.StrVal] {
			t.Errorf("a probe asks at %v, which is no port of the container", probe.HTTPGet.Port)
		}
	}
	mounted := map[string]bool{}
	for _, v := range pod.Volumes {
		mounted[v.Name] = true
	}
	for _, m := range c.VolumeMounts {
		if !mounted[m.Name] {
			t.Errorf("there is no volume %s", m.Name)
		}
	}
}
