//! The resources of a running operator, from /proc.

use std::fs::read_to_string;

/// A process by its ID.
#[derive(Clone, Copy, Debug)]
pub struct Watched(pub u32);

impl Watched {
    /// Its proportional set size (PSS), in kB.
    pub fn pss(self) -> u64 {
        self.kilobytes("smaps_rollup", "Pss:")
    }

    /// Its anonymous memory, in kB.
    pub fn anonymous(self) -> u64 {
        self.kilobytes("smaps_rollup", "Pss_Anon:")
    }

    /// Its peak memory, in kB.
    pub fn most(self) -> u64 {
        self.kilobytes("status", "VmHWM:")
    }

    fn kilobytes(self, file: &str, field: &str) -> u64 {
        let text = read_to_string(format!("/proc/{}/{file}", self.0)).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
        line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_default()
    }

    /// Its CPU time so far, in seconds.
    pub fn cpu(self) -> f64 {
        let stat = read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11);
        let mut ticks = || fields.next().and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
        // utime and stime, in ticks of 10 ms.
        (ticks() + ticks()) / 100.0
    }
}

impl std::fmt::Display for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (pss, anonymous, most, cpu) = (self.pss(), self.anonymous(), self.most(), self.cpu());
        write!(f, "PSS {pss} kB ({anonymous} kB of it no file's), at most {most} kB RSS, CPU {cpu:.1} s")
    }
}
