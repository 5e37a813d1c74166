//! The text after the flags in `--help`, the man pages and docs/reference/command-line.md: environment variables and exit
//! codes.

/// The environment variables and exit codes that all commands share.
pub const OF_ALL: &str = "\
Environment:
  KUBECONFIG               kubeconfigs, separated by colons; used without --kubeconfig
  HTTPS_PROXY, NO_PROXY    the proxy for the API server, and the hosts without a proxy; also in lower case
  NO_COLOR                 disables colours if set
  COLUMNS                  the width of lines if standard output is not a terminal
  LC_ALL, LC_CTYPE, LANG   the first that is set decides whether output is UTF-8 or ASCII; default UTF-8
  TERM                     `dumb`: output is not redrawn in place
  USER, LOGNAME            your name in records, if the API server does not report it
  RUST_LOG                 the operator's log levels, such as info,windlass=debug
  HOSTNAME                 the identity of a replica of the operator

Exit codes:
  0  done
  1  failed: the last line on standard error is the reason
  2  wrong usage: nothing was done
  Commands with other exit codes list them in their own help.";

pub const OF_PLAN: &str = "\
Exit codes:
  0  nothing would change
  1  the change would be rejected or could not be evaluated, or a usage error
  2  something would change";

pub const OF_STATUS: &str = "\
Exit codes with --exit-status, of several fleets the worst:
  0  up to date, also if paused
  1  stalled, rejected or failed
  2  wrong usage
  3  in progress, or waiting for a person
Without it: 0 shown, 1 something could not be read, 2 wrong usage.";

pub const OF_WAIT: &str = "\
Exit codes, of several fleets the worst:
  0  up to date
  1  stalled, rejected, failed, or nothing selected
  2  wrong usage
  3  still in progress when --timeout expires";

pub const OF_VERBS: &str = "\
Exit codes:
  0  done, or nothing to do
  1  failed for one of the objects (the others were changed), or nothing selected
  2  wrong usage: nothing was done";

/// The objects of a verb that accepts fleets alone.
pub const OF_NAMED_FLEETS: &str = "nd/NAME for a NodeDeployment; several, or TYPE NAME NAME";

/// The objects of `explain`, which accepts nodes too.
pub const OF_LOOKED_AT_OR_NODES: &str = "nd/NAME for a NodeDeployment, ssr/NAME for a StatefulSetRollout, sn/NAME for a StatefulNode; several, or TYPE NAME NAME; \
     nd, ssr or sn for all of a type";

/// The objects of a verb that accepts nodes too.
pub const OF_NAMED_OR_NODES: &str = "nd/NAME for a NodeDeployment, ssr/NAME for a StatefulSetRollout, sn/NAME for a StatefulNode; several, or TYPE NAME NAME";
