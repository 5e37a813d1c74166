package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// users are the bearers of tokens; each component has a name of its own, so that the audit log tells them apart.
var users = []string{"admin", "windlass-test-kubelet", "system:kube-controller-manager", "system:kube-scheduler"}

// config is where a control plane keeps its files and listens.
type config struct {
	dir            string
	ca             []byte
	server         string
	etcdClientPort int
	etcdPeerPort   int
	apiPort        int
	tokens         map[string]string
}

func configure(dir, auditLevel string) (*config, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	c := &config{dir: dir, tokens: map[string]string{}}
	for _, port := range []*int{&c.etcdClientPort, &c.etcdPeerPort, &c.apiPort} {
		reserved, err := reservePort()
		if err != nil {
			return nil, err
		}
		*port = reserved
	}
	c.server = fmt.Sprintf("https://127.0.0.1:%d", c.apiPort)
	if err := c.writeCertificates(); err != nil {
		return nil, err
	}
	var tokenFile strings.Builder
	for _, user := range users {
		random := make([]byte, 16)
		_, _ = rand.Read(random)
		c.tokens[user] = hex.EncodeToString(random)
		fmt.Fprintf(&tokenFile, "%s,%s,%s,system:masters\n", c.tokens[user], user, user)
		if err := os.WriteFile(c.kubeconfig(user), []byte(c.kubeconfigText(user)), 0o600); err != nil {
			return nil, err
		}
	}
	files := map[string]string{
		"tokens.csv": tokenFile.String(),
		// The components' own reads are most of the traffic, and no test asks about them.
		"audit-policy.yaml": fmt.Sprintf(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: [windlass-test-kubelet, "system:kube-controller-manager", "system:kube-scheduler", "system:apiserver"]
  verbs: [get, list, watch]
- level: None
  resources: [{group: "", resources: [events]}, {group: coordination.k8s.io, resources: [leases]}]
  users: ["system:kube-controller-manager", "system:kube-scheduler", "system:apiserver"]
- level: None
  nonResourceURLs: ["*"]
- level: %s
`, auditLevel),
		"scheduler.yaml": fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q, qps: 1000, burst: 2000}
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 2
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  # The defaults would count each pod against all others of its Service, which no test asks for.
  - name: PodTopologySpread
    args: {defaultingType: List}
`, c.kubeconfig("system:kube-scheduler")),
	}
	for name, text := range files {
		if err := os.WriteFile(c.path(name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *config) path(name string) string {
	return filepath.Join(c.dir, name)
}

func (c *config) kubeconfig(user string) string {
	return c.path(strings.ReplaceAll(user, ":", "-") + ".kubeconfig")
}

func (c *config) kubeconfigText(user string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: windlass-test
  cluster: {server: %q, certificate-authority: %q}
users:
- name: %q
  user: {token: %q}
contexts:
- name: windlass-test
  context: {cluster: windlass-test, user: %q, namespace: default}
current-context: windlass-test
`, c.server, c.path("ca.crt"), user, c.tokens[user], user)
}

func (c *config) etcd() []string {
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", c.etcdClientPort), fmt.Sprintf("http://127.0.0.1:%d", c.etcdPeerPort)
	return []string{
		"--name=test", "--data-dir=" + c.path("etcd"), "--unsafe-no-fsync", "--log-level=warn", "--socket-reuse-port",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=test=" + peer,
	}
}

func (c *config) apiServer(admission string) []string {
	return []string{
		"--enable-admission-plugins=" + admission,
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", c.etcdClientPort),
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.apiPort), "--permit-port-sharing",
		"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		"--tls-cert-file=" + c.path("server.crt"), "--tls-private-key-file=" + c.path("server.key"),
		"--token-auth-file=" + c.path("tokens.csv"), "--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + c.path("sa.key"),
		"--service-account-signing-key-file=" + c.path("sa.key"),
		"--service-cluster-ip-range=10.96.0.0/16", "--enable-priority-and-fairness=false",
		"--max-requests-inflight=3000", "--max-mutating-requests-inflight=1000",
		"--audit-policy-file=" + c.path("audit-policy.yaml"), "--audit-log-path=" + c.path("audit.log"), "--audit-log-maxsize=4096",
	}
}

// controllerManager is without the controllers of a list that is separated by commas.
func (c *config) controllerManager(without string) []string {
	controllers := "*,-persistentvolume-binder-controller,-persistentvolume-attach-detach-controller,-persistentvolume-expander-controller," +
		"-token-cleaner-controller,-bootstrap-signer-controller,-ttl-controller," +
		"-certificatesigningrequest-signing-controller,-certificatesigningrequest-approving-controller,-certificatesigningrequest-cleaner-controller"
	for name := range strings.SplitSeq(without, ",") {
		if name != "" {
			controllers += ",-" + name
		}
	}
	kubeconfig := c.kubeconfig("system:kube-controller-manager")
	return []string{
		"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--secure-port=0",
		"--service-account-private-key-file=" + c.path("sa.key"), "--root-ca-file=" + c.path("ca.crt"),
		"--kube-api-qps=1000", "--kube-api-burst=2000", "--concurrent-statefulset-syncs=20", "--concurrent-gc-syncs=20",
		"--node-monitor-grace-period=24h", "--horizontal-pod-autoscaler-sync-period=1s",
		// Not run: the volume controllers, whose part the played kubelet takes, and what no test needs.
		"--controllers=" + controllers,
	}
}

func (c *config) scheduler() []string {
	return []string{"--config=" + c.path("scheduler.yaml"), "--secure-port=0"}
}

// reservePort finds a free port and holds it, bound and not listening, until this process ends: the part that
// will listen on it shares it by SO_REUSEPORT, and nobody else can be given it meanwhile.
func reservePort() (int, error) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	const reusePort = 15 // SO_REUSEPORT on Linux; package syscall does not name it on every architecture
	if err := syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, reusePort, 1); err != nil {
		return 0, err
	}
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	address, err := syscall.Getsockname(socket)
	if err != nil {
		return 0, err
	}
	return address.(*syscall.SockaddrInet4).Port, nil
}

// writeCertificates makes an authority, a certificate for the API server, and the key for service account tokens.
func (c *config) writeCertificates() error {
	caKey, err := c.writeKey("ca.key")
	if err != nil {
		return err
	}
	serverKey, err := c.writeKey("server.key")
	if err != nil {
		return err
	}
	if _, err := c.writeKey("sa.key"); err != nil {
		return err
	}
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "windlass-test-ca"}, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "kube-apiserver"}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost", "kubernetes.default.svc"},
	}
	if c.ca, err = c.writeCertificate("ca.crt", ca, ca, caKey, caKey); err != nil {
		return err
	}
	_, err = c.writeCertificate("server.crt", server, ca, serverKey, caKey)
	return err
}

func (c *config) writeKey(name string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, os.WriteFile(c.path(name), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

func (c *config) writeCertificate(name string, of, by *x509.Certificate, key, byKey *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, of, by, &key.PublicKey, byKey)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return text, os.WriteFile(c.path(name), text, 0o600)
}
