// Command temporal-worker is a versioned Temporal worker for tests and for the example. What it is, its environment
// says, as in any pod: where Temporal is and under which deployment and build ID it registers.
//
//	TEMPORAL_DEPLOYMENT_NAME, TEMPORAL_WORKER_BUILD_ID
//	TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE and the rest of the SDKs' environment configuration
//	TASK_QUEUES  the task queues that it polls, with commas between them; "orders" if there are none
//	BEHAVIOR     Pinned, or AutoUpgrade
//	GATE         "fail": the workflow Gate fails; "hang": it never ends
//	BIND, PORT   where it answers readiness probes; it answers once it polls
//	CRASH        anything: it ends at once
package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

var buildID = os.Getenv("TEMPORAL_WORKER_BUILD_ID")

// Hold waits for the signal "go" and answers with the build that carried out its last step.
func Hold(ctx workflow.Context) (string, error) {
	workflow.GetSignalChannel(ctx, "go").Receive(ctx, nil)
	return buildID, nil
}

// Beat wakes once a second until the signal "go", so that its build is needed all the time, and answers with that build.
func Beat(ctx workflow.Context) (string, error) {
	channel := workflow.GetSignalChannel(ctx, "go")
	for {
		if ok, _ := channel.ReceiveWithTimeout(ctx, time.Second, nil); ok {
			return buildID, nil
		}
	}
}

// Gate is what has to succeed before a version is given new workflows. A field "fail" in its input makes it fail, too, and
// a field "hang" makes it hang.
func Gate(ctx workflow.Context, input map[string]any) (string, error) {
	if said, ok := input["fail"].(string); ok {
		return "", errors.New(said)
	}
	if input["hang"] == true {
		return "", workflow.Sleep(ctx, time.Hour)
	}
	switch os.Getenv("GATE") {
	case "fail":
		return "", errors.New("the gate of " + buildID + " was told to fail")
	case "hang":
		return "", workflow.Sleep(ctx, time.Hour)
	}
	return buildID, nil
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// complaints is a log of errors alone: the rest would be thousands of lines of a pod's log.
type complaints struct{}

func (complaints) Debug(string, ...any) {}
func (complaints) Info(string, ...any)  {}
func (complaints) Warn(string, ...any)  {}
func (complaints) Error(text string, pairs ...any) {
	fmt.Fprintln(os.Stderr, append([]any{text}, pairs...)...)
}

func or(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

func options() worker.Options {
	behavior := workflow.VersioningBehaviorPinned
	if os.Getenv("BEHAVIOR") == "AutoUpgrade" {
		behavior = workflow.VersioningBehaviorAutoUpgrade
	}
	versioning := worker.DeploymentOptions{
		UseVersioning: buildID != "",
		Version: worker.WorkerDeploymentVersion{
			DeploymentName: os.Getenv("TEMPORAL_DEPLOYMENT_NAME"), BuildID: buildID,
		},
		DefaultVersioningBehavior: behavior,
	}
	if buildID == "" {
		versioning = worker.DeploymentOptions{}
	}
	// A worker that is told to end answers its pollers at once: what is left to do is another pod's.
	return worker.Options{DeploymentOptions: versioning, WorkerStopTimeout: time.Second}
}

func main() {
	if os.Getenv("CRASH") != "" {
		check(errors.New("told to crash"))
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	began := time.Now()
	given, err := envconfig.LoadDefaultClientOptions()
	check(err)
	given.Logger = complaints{}
	c, err := client.Dial(given)
	check(err)
	defer c.Close()
	for _, queue := range strings.Split(or(os.Getenv("TASK_QUEUES"), "orders"), ",") {
		w := worker.New(c, queue, options())
		w.RegisterWorkflow(Hold)
		w.RegisterWorkflow(Beat)
		w.RegisterWorkflow(Gate)
		check(w.Start())
		defer w.Stop()
	}
	if port := os.Getenv("PORT"); port != "" {
		go func() {
			ready := func(http.ResponseWriter, *http.Request) {}
			check(http.ListenAndServe(or(os.Getenv("BIND"), "127.0.0.1")+":"+port, http.HandlerFunc(ready)))
		}()
	}
	fmt.Printf("polling as %q after %d ms\n", buildID, time.Since(began).Milliseconds())
	<-stop
}
