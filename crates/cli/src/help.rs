//! The text after the flags in `--help`, the man pages and docs/reference/command-line.md: environment variables and exit
//! codes.

use super::kind::{Kind, either};

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

/// The objects of a command that requires names.
pub fn named(is_accepted: impl Fn(Kind) -> bool) -> String {
    let kinds = Kind::all().filter(|kind| is_accepted(*kind));
    let forms: Vec<String> =
        kinds.map(|kind| format!("{}/NAME for a {}", kind.short(), kind.name())).collect();
    format!("{}; several, or TYPE NAME NAME", forms.join(", "))
}

/// The objects of a command that accepts a type alone.
pub fn selected(is_accepted: impl Fn(Kind) -> bool + Copy) -> String {
    let kinds = Kind::all().filter(|kind| is_accepted(*kind));
    let shorts: Vec<String> = kinds.map(|kind| kind.short().to_owned()).collect();
    format!("{}; {} for all of that type", named(is_accepted), either(&shorts))
}

/// True for the kinds that have rollouts.
pub fn has_rollouts(kind: Kind) -> bool {
    kind != Kind::Node
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use crate::extension::HAS_WORKERS;

    #[test]
    fn help_of_each_command_names_the_kinds_that_it_accepts() {
        let mut cases = vec![
            ("explain", "nd sn ssr wwd"),
            ("promote", "nd wwd"),
            ("rollback", "nd wwd"),
            ("restart", "nd sn ssr wwd"),
            ("skip", "nd sn ssr wwd"),
        ];
        let others = "status plan diff logs wait pause resume abort retry approve history";
        cases.extend(others.split(' ').map(|command| (command, "nd ssr wwd")));
        cases.extend(HAS_WORKERS.then_some(("delete", "wwd")));
        for (command, kinds) in cases {
            let all = crate::command();
            let found = all.find_subcommand(command).unwrap();
            let words = found.get_positionals().next().unwrap().get_help().unwrap().to_string();
            let forms = words.split(';').next().unwrap().split(", ");
            let named: Vec<&str> = forms.map(|form| form.split('/').next().unwrap()).collect();
            let expected: Vec<&str> = kinds.split(' ').filter(|kind| HAS_WORKERS || *kind != "wwd").collect();
            assert_eq!(named, expected, "{command}: {words}");
        }
    }
}
