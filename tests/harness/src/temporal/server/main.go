// Command temporal-server is a real Temporal server for tests and for the example: all four services in one process, with
// SQLite in memory or in a file. It says one line once it serves, and ends by SIGTERM or when its standard input closes,
// so that no server outlives a test.
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/temporal"
)

// settings are repeatable -set key=value of the dynamic configuration.
type settings map[string]any

func (s settings) String() string { return "" }

func (s settings) Set(text string) error {
	key, value, ok := strings.Cut(text, "=")
	if !ok {
		return fmt.Errorf("want key=value, not %q", text)
	}
	if number, err := strconv.Atoi(value); err == nil {
		s[key] = number
	} else if value == "true" || value == "false" {
		s[key] = value == "true"
	} else {
		// Durations stay text: "2s".
		s[key] = value
	}
	return nil
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "temporal-server:", err)
		os.Exit(1)
	}
}

// freePorts are free at this moment: all are held until the last one is found.
func freePorts(host string, count int) []int {
	ports := make([]int, count)
	for i := range ports {
		listener, err := net.Listen("tcp", host+":0")
		check(err)
		defer func() { _ = listener.Close() }()
		ports[i] = listener.Addr().(*net.TCPAddr).Port
	}
	return ports
}

func main() {
	began := time.Now()
	dynamic := settings{}
	host := flag.String("host", "127.0.0.1", "the address of loopback to listen at")
	port := flag.Int("port", 0, "the frontend's port; 0: any that is free")
	namespaces := flag.String("namespaces", "default", "the namespaces to register, with commas between them")
	file := flag.String("file", "", "the SQLite file; in memory without one")
	level := flag.String("log", "error", "the level of the log")
	guarded := flag.String("guarded", "", "a folder: serves by TLS too, and writes its certificates there")
	apiKey := flag.String("api-key", "", "the key that one of the guarded ports asks for")
	flag.Var(dynamic, "set", "key=value of the dynamic configuration, repeatable")
	flag.Parse()

	ports := freePorts(*host, 4)
	if *port == 0 {
		*port = ports[0]
	}
	store := database(*file)
	prepare(store, *file, strings.Split(*namespaces, ","))
	frontend := fmt.Sprintf("%s:%d", *host, *port)
	known := dynamicconfig.StaticClient{}
	for key, value := range dynamic {
		known[dynamicconfig.MakeKey(key)] = value
	}
	at := func(port int) static.Hosts { return static.SingleLocalHost(fmt.Sprintf("%s:%d", *host, port)) }
	server, err := temporal.NewServer(
		temporal.WithConfig(configuration(*host, *port, ports, store)),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(map[primitives.ServiceName]static.Hosts{
			primitives.FrontendService: at(*port), primitives.HistoryService: at(ports[1]),
			primitives.MatchingService: at(ports[2]), primitives.WorkerService: at(ports[3]),
		}),
		temporal.WithLogger(log.NewZapLogger(log.BuildZapLogger(log.Config{Stdout: false, Level: *level}))),
		temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
		temporal.WithDynamicConfigClient(known),
	)
	check(err)
	check(server.Start())
	words := []string{"ready", frontend}
	if *guarded != "" {
		byCertificate, byKey := guard(*guarded, *host, frontend, *apiKey)
		words = append(words, byCertificate, byKey)
	}
	// One line for whoever started it: where it serves, and how long that took.
	fmt.Printf("%s %dms\n", strings.Join(words, " "), time.Since(began).Milliseconds())

	stop := make(chan os.Signal, 2)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop <- syscall.SIGTERM
	}()
	<-stop
	// A server that lingers over its pollers is of no use to a test.
	time.AfterFunc(5*time.Second, func() { os.Exit(0) })
	check(server.Stop())
}
