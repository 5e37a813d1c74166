//! The text after the flags in `--help`, the man pages and docs/reference/command-line.md: environment variables and exit
//! codes.

/// The environment variables and exit codes that all commands share.
pub const OF_ALL: &str = "\
Environment:
  KUBECONFIG               kubeconfigs, separated by colons, where --kubeconfig names none
  HTTPS_PROXY, NO_PROXY    the proxy on the way to the API server, and the hosts that none is used for; lower case, too
  NO_COLOR                 no colours, where it is set
  COLUMNS                  how wide lines are, where standard output is no terminal
  LC_ALL, LC_CTYPE, LANG   whether there is more than ASCII, the first that is set; where none is, there is
  TERM                     `dumb`: nothing is drawn over
  USER, LOGNAME            who asks, where the API server does not say it
  RUST_LOG                 what the operator logs, as info,windlass=debug
  HOSTNAME                 what a replica of the operator calls itself

Exit codes:
  0  done
  1  failed: the last line on standard error says why
  2  wrong usage: nothing was done
  A command that has others says so in its own help.";

pub const OF_PLAN: &str = "\
Exit codes:
  0  nothing would change
  1  the change would be refused, nobody can tell, or wrong usage
  2  something would change";

pub const OF_STATUS: &str = "\
Exit codes with --exit-status, of several fleets the worst:
  0  up to date, paused or not
  1  stalled or refused, or failed
  2  wrong usage
  3  on its way, or waiting for a person
Without it: 0 where it was shown, 1 where something could not be read, 2 wrong usage.";

pub const OF_WAIT: &str = "\
Exit codes, of several fleets the worst:
  0  up to date
  1  stalled or refused, as soon as it is so; or failed, or there is none
  2  wrong usage
  3  still on its way when --timeout is over";

pub const OF_VERBS: &str = "\
Exit codes:
  0  done, or it was so already
  1  failed, or refused by one of the objects; the others were done; or there is none
  2  wrong usage: nothing was done";

/// The objects of a verb that accepts fleets alone.
pub const OF_NAMED_FLEETS: &str = "nd/NAME for a NodeDeployment; several, or TYPE NAME NAME";

/// The objects of `explain`, which accepts nodes too.
pub const OF_LOOKED_AT_OR_NODES: &str = "nd/NAME for a NodeDeployment, ssr/NAME for a StatefulSetRollout, sn/NAME for a StatefulNode; several, or TYPE NAME NAME; \
     nd, ssr or sn for all of a type";

/// The objects of a verb that accepts nodes too.
pub const OF_NAMED_OR_NODES: &str = "nd/NAME for a NodeDeployment, ssr/NAME for a StatefulSetRollout, sn/NAME for a StatefulNode; several, or TYPE NAME NAME";
