//! All nodes of a fleet by name, in pages.

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use super::super::subject::PageKind;
use super::super::view::PAGE;
use super::{Frame, signed, silence};
use crate::report::{FleetReport, clock_time};

/// The nodes on this page, from 1.
#[must_use]
pub fn nodes(
    kind: PageKind,
    report: &FleetReport,
    page: usize,
    silent_since: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> Markup {
    let path = kind.path(&report.namespace, &report.name);
    let word = kind.nodes();
    let pages = report.nodes.len().div_ceil(PAGE).max(1);
    let page = page.clamp(1, pages);
    let shown = report.nodes.iter().skip((page - 1) * PAGE).take(PAGE);
    let to = |page: usize| format!("{path}/nodes?page={page}");
    let main = html! {
        h1 { (word) " of " (report.name) }
        (silence(silent_since, now))
        p.dim { (report.nodes.len()) " " (word.to_lowercase()) ", as of " (clock_time(now, now)) " UTC. " a href="" { "Reload" } }
        div.wide tabindex="0" role="region" aria-label=(word) {
            table.nodes {
                thead { tr { th scope="col" { (word.trim_end_matches('s')) } th scope="col" { "Revision" } th scope="col" { "State" } th scope="col" { "Since" } } }
                tbody {
                    @for node in shown {
                        tr {
                            th scope="row" { (signed(node.health)) " " (node.name) }
                            td { (node.versions(report.began_from())) }
                            td { (node.words()) }
                            td { @if let Some(since) = node.since { (clock_time(since, now)) } }
                        }
                    }
                }
            }
        }
        @if pages > 1 {
            nav.pages aria-label="Pages" {
                @if page > 1 { a href=(to(page - 1)) rel="prev" { "Previous" } " " }
                span { "Page " (page) " of " (pages) }
                @if page < pages { " " a href=(to(page + 1)) rel="next" { "Next" } }
            }
        }
    };
    let title = format!("{word} of {}", report.name);
    Frame {
        title: &title,
        live: None,
        crumbs: &[(&report.name, path.clone()), (word, format!("{path}/nodes"))],
    }
    .around(&main)
}
