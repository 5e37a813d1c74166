// Command lameduck runs a NATS server as its child, and takes it into lame duck mode when it is asked to over HTTP: the
// peer of a hook that runs before a node goes. In lame duck mode a server hands the leadership of its streams on, sends its
// clients to the others, and ends. This one ends only when it is told to: otherwise the kubelet would start the server
// again before its pod is taken down.
//
//	lameduck --listen ADDRESS nats-server ARGUMENT...
//	lameduck stream --servers ADDRESS,... NAME        makes a stream, or spreads it over more servers (see stream.go)
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
)

// A server and how far it is on its way down.
type duck struct {
	lock   sync.Mutex
	server *os.Process
	state  string
}

// ServeHTTP says how far it is. A POST begins it, and may be sent again.
func (d *duck) ServeHTTP(answer http.ResponseWriter, request *http.Request) {
	d.lock.Lock()
	defer d.lock.Unlock()
	if request.Method == http.MethodPost && d.state == "serving" {
		if err := d.server.Signal(syscall.SIGUSR2); err != nil {
			http.Error(answer, err.Error(), http.StatusServiceUnavailable)
			return
		}
		d.state = "draining"
	}
	answer.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(answer, "{\"state\": %q}\n", d.state)
}

// ended takes down that the server has ended, and says whether that was asked for.
func (d *duck) ended() bool {
	d.lock.Lock()
	defer d.lock.Unlock()
	asked := d.state == "draining"
	if asked {
		d.state = "drained"
	}
	return asked
}

func main() {
	// The server is to die with this program, however that does. What counts is the thread that started it.
	runtime.LockOSThread()
	if len(os.Args) > 1 && os.Args[1] == "stream" {
		if err := stream(os.Args[2:]); err != nil {
			log.Fatal(err)
		}
		return
	}
	listen := flag.String("listen", ":8223", "where to be asked")
	flag.Parse()
	if flag.NArg() == 0 {
		log.Fatal("usage: lameduck --listen ADDRESS nats-server ARGUMENT...")
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT)
	server := exec.Command(flag.Arg(0), flag.Args()[1:]...)
	server.Stdout, server.Stderr = os.Stdout, os.Stderr
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	d := &duck{server: server.Process, state: "serving"}
	http.Handle("/lame-duck", d)
	go func() { log.Fatal(http.ListenAndServe(*listen, nil)) }()
	over := make(chan error, 1)
	go func() { over <- server.Wait() }()
	toEnd := false
	for {
		select {
		case word := <-told:
			// One that is in lame duck mode passes this over, and ends when it is done.
			if toEnd = true; server.Process.Signal(word) != nil {
				return
			}
		case err := <-over:
			if !d.ended() || toEnd {
				var exit *exec.ExitError
				if errors.As(err, &exit) {
					os.Exit(exit.ExitCode())
				}
				return
			}
			log.Print("the server is drained; waiting to be told to end")
		}
	}
}
