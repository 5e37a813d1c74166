package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	startTimeout = 2 * time.Minute
	pollInterval = 20 * time.Millisecond
	logTailBytes = 2000
)

// message is one line of JSON on standard output.
type message struct {
	Event      string         `json:"event"` // apiserver | ready | failed
	Server     string         `json:"server,omitempty"`
	Kubeconfig string         `json:"kubeconfig,omitempty"`
	CA         string         `json:"ca,omitempty"`
	Token      string         `json:"token,omitempty"`
	AuditLog   string         `json:"auditLog,omitempty"`
	Pids       map[string]int `json:"pids,omitempty"`
	Error      string         `json:"error,omitempty"`
}

type part struct {
	name    string
	command *exec.Cmd
	ended   chan struct{}
}

type supervisor struct {
	dir    string
	parts  []*part
	failed chan string   // a part ended by itself
	goOn   chan struct{} // the owner said "continue"
	stop   chan struct{} // the owner went away, or a signal came
}

// supervise runs a control plane in -dir until standard input closes, which the kernel does for it when its
// owner dies, however that dies. Standard output tells the owner, in JSON lines, how far it is. After the API
// server answers it waits for a line on standard input, so that the owner can create what controllers read
// only when they start (the garbage collector's list of kinds), and then starts the rest.
func supervise(arguments []string) int {
	flags := flag.NewFlagSet("supervise", flag.ExitOnError)
	dir := flags.String("dir", "", "data folder, made if need be and removed at the end")
	keep := flags.Bool("keep", false, "keep the data folder")
	auditLevel := flags.String("audit-level", "Metadata", "level of the audit log: None, Metadata, Request or RequestResponse")
	admission := flags.String("admission", "", "admission plugins beside those that are on by default, separated by commas")
	featureGates := flags.String("feature-gates", "", "feature gates of the API server and the controllers, as NAME=true separated by commas")
	without := flags.String("without", "", "controllers that are not run, separated by commas")
	_ = flags.Parse(arguments)

	// Children ask the kernel to be killed when the thread that started them ends: this one lives as long as the process.
	runtime.LockOSThread()
	s := &supervisor{dir: *dir, failed: make(chan string, 8), goOn: make(chan struct{}), stop: make(chan struct{})}
	go s.listen()
	err := s.run(*auditLevel, *admission, *featureGates, *without)
	s.endAll()
	if err != nil {
		say(message{Event: "failed", Error: err.Error()})
	}
	if !*keep && *dir != "" {
		_ = os.RemoveAll(*dir)
	}
	if err != nil {
		return 1
	}
	return 0
}

func (s *supervisor) listen() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		input := bufio.NewReader(os.Stdin)
		if _, err := input.ReadString('\n'); err != nil {
			return
		}
		close(s.goOn)
		_, _ = io.Copy(io.Discard, input)
	}()
	select {
	case <-signals:
	case <-closed:
	}
	close(s.stop)
}

func (s *supervisor) run(auditLevel, admission, featureGates, without string) error {
	if s.dir == "" {
		return fmt.Errorf("-dir is missing")
	}
	c, err := configure(s.dir, auditLevel)
	if err != nil {
		return err
	}
	if err := s.start("etcd", c.etcd()); err != nil {
		return err
	}
	if err := s.start("kube-apiserver", append(c.apiServer(admission), "--feature-gates="+featureGates)); err != nil {
		return err
	}
	if err := s.awaitReady(c); err != nil || s.stopped() {
		return err
	}
	report := message{Event: "apiserver", Server: c.server, Kubeconfig: c.kubeconfig("admin"), CA: c.path("ca.crt"), Token: c.tokens["admin"],
		AuditLog: c.path("audit.log")}
	say(report)
	select {
	case <-s.goOn:
	case <-s.stop:
		return nil
	case what := <-s.failed:
		return fmt.Errorf("%s", what)
	}
	if err := s.start("kube-controller-manager", append(c.controllerManager(without), "--feature-gates="+featureGates)); err != nil {
		return err
	}
	if err := s.start("kube-scheduler", c.scheduler()); err != nil {
		return err
	}
	report.Event, report.Pids = "ready", map[string]int{"supervise": os.Getpid()}
	for _, p := range s.parts {
		report.Pids[p.name] = p.command.Process.Pid
	}
	say(report)
	select {
	case <-s.stop:
		return nil
	case what := <-s.failed:
		return fmt.Errorf("%s", what)
	}
}

func (s *supervisor) stopped() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

func (s *supervisor) start(name string, arguments []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(s.dir, name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	p := &part{name: name, command: exec.Command(self, append([]string{name}, arguments...)...), ended: make(chan struct{})}
	p.command.Dir, p.command.Stdout, p.command.Stderr = s.dir, log, log
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.command.Start(); err != nil {
		return err
	}
	s.parts = append(s.parts, p)
	go func() {
		err := p.command.Wait()
		close(p.ended)
		s.failed <- fmt.Sprintf("%s ended (%v): %s", name, err, s.logTail(name))
	}()
	return nil
}

// awaitReady asks the API server itself, since only it knows when its built-in roles and namespaces are there.
func (s *supervisor) awaitReady(c *config) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.ca)
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer client.CloseIdleConnections()
	deadline := time.After(startTimeout)
	for {
		if response, err := client.Get(c.server + "/readyz"); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-s.stop:
			return nil
		case what := <-s.failed:
			return fmt.Errorf("%s", what)
		case <-deadline:
			return fmt.Errorf("kube-apiserver was not ready in %s: %s", startTimeout, s.logTail("kube-apiserver"))
		case <-time.After(pollInterval):
		}
	}
}

// endAll kills rather than asks, since nothing here is kept; the API server before its etcd, which it would wait for.
func (s *supervisor) endAll() {
	for i := len(s.parts) - 1; i >= 0; i-- {
		_ = s.parts[i].command.Process.Kill()
		<-s.parts[i].ended
	}
}

func (s *supervisor) logTail(name string) string {
	text, _ := os.ReadFile(filepath.Join(s.dir, name+".log"))
	return strings.TrimSpace(string(text[max(0, len(text)-logTailBytes):]))
}

func say(m message) {
	line, _ := json.Marshal(m)
	_, _ = os.Stdout.Write(append(line, '\n'))
}
