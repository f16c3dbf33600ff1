package check

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

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
		data, err := os.ReadFile(file)
		must(t, err)
		for doc := range bytes.SplitSeq(data, []byte("\n---\n")) {
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
	for _, probe := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe, c.StartupProbe} {
		has := func(p corev1.ContainerPort) bool { return p.Name == probe.HTTPGet.Port.StrVal }
		if probe != nil && !slices.ContainsFunc(c.Ports, has) {
			t.Errorf("a probe asks at %v, which is no port of the container", probe.HTTPGet.Port)
		}
	}
	for _, m := range c.VolumeMounts {
		if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
			t.Errorf("there is no volume %s", m.Name)
		}
	}
}

func TestTheComposeFileLoadsAndNamesFilesThatAreThere(t *testing.T) {
	file, err := filepath.Abs("../compose/compose.yaml")
	must(t, err)
	opts, err := cli.NewProjectOptions([]string{file}, cli.WithWorkingDirectory(filepath.Dir(file)), cli.WithEnvFiles(filepath.Join(filepath.Dir(file), "example.env")), cli.WithDotEnv)
	must(t, err)
	p, err := opts.LoadProject(t.Context())
	must(t, err)
	gateways, mounted := 0, map[string]bool{}
	for name, s := range p.Services {
		for _, v := range s.Volumes {
			if v.Type != "bind" {
				continue
			}
			mounted[v.Source] = true
			if _, err := os.Stat(v.Source); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if s.Build != nil {
			gateways++
			if _, err := os.Stat(filepath.Join(s.Build.Context, s.Build.Dockerfile)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if gateways != 3 {
		t.Errorf("%d gateways", gateways)
	}
	boards, err := filepath.Glob("../../dashboards/*.json")
	if err != nil || len(boards) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	for _, board := range boards {
		if path, err := filepath.Abs(board); err != nil || !mounted[path] {
			t.Errorf("Grafana is not given %s: %v", board, err)
		}
	}
}

const unit = "../systemd/noncegate.service"

// maxExposed is the most of systemd's score, 0 to 10, that the unit may have.
const maxExposed = 1.5

func TestTheUnitIsUnderstoodAndHardened(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Fatal("systemd-analyze is not here; on Debian it comes with the package systemd")
	}
	// verify asks whether the program is there.
	text, err := os.ReadFile(unit)
	must(t, err)
	here := filepath.Join(t.TempDir(), "noncegate.service")
	must(t, os.WriteFile(here, []byte(strings.Replace(string(text), "/usr/local/bin/gateway", "/bin/true", 1)), 0o600))
	if out, err := exec.Command("systemd-analyze", "verify", here).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("verify: %v\n%s", err, out)
	}
	// Listeners read the longest backlog below /proc/sys, figures the time of the start
	// from /proc/stat; and what is away at the start may come back.
	for _, harmful := range []string{"ProcSubset=pid", "RestartPreventExitStatus="} {
		if strings.Contains(string(text), "\n"+harmful) {
			t.Errorf("the unit says %s", harmful)
		}
	}
	if !strings.Contains(string(text), "\nLimitCORE=0\n") {
		t.Error("a dump of the memory, which has credentials, may be written")
	}
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", here).CombinedOutput()
	found := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindSubmatch(out)
	if found == nil {
		t.Skipf("this systemd-analyze does not judge units that are not loaded: %v\n%s", err, out)
	}
	if score, err := strconv.ParseFloat(string(found[1]), 64); err != nil || score > maxExposed {
		t.Errorf("exposure %s, want at most %v\n%s", found[1], maxExposed, out)
	}
}
