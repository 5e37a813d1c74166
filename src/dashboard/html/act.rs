//! What a button would do, and the form that does it.

use maud::{Markup, html};

use super::Frame;
use crate::dashboard::hands::{Button, Deed, MOST_OF_A_REASON, Refused, Rehearsed};

/// A deed that somebody asks about.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The deed.
    pub deed: &'a Deed,
    /// The secret of forms.
    pub form: &'a str,
    /// Why, as they have written it already.
    pub reason: &'a str,
    /// What was refused when they tried, if it was.
    pub tried: Option<&'a Refused>,
}

impl Asked<'_> {
    fn path(&self) -> String {
        format!("/fleets/{}/{}", self.deed.namespace, self.deed.name)
    }
}

/// The page of a button: what it is for, what it would do, and a form.
#[must_use]
pub fn act(asked: &Asked<'_>, answer: &Result<Rehearsed, Refused>) -> Markup {
    let (deed, path) = (asked.deed, asked.path());
    let title = format!("{} {}", deed.button.title(), deed.name);
    let main = html! {
        h1 { (title) }
        p { (deed.button.purpose()) }
        @if let Some(tried) = asked.tried { p.refusal role="alert" { "It was not done: " (tried.sentence) } }
        h2 { "What it would do" }
        @match answer {
            Ok(rehearsed) => {
                p { "Once it is done: " strong { (rehearsed.said) } }
                @if !rehearsed.then.is_empty() { ul.then { @for line in &rehearsed.then { li { (line) } } } }
                p.dim { "The API server was asked in a dry run. Nothing is changed yet." }
                @if rehearsed.changes { (form(asked, &rehearsed.seal, false)) }
            }
            Err(refused) => {
                p.refusal role="alert" { (refused.sentence) }
                @if let Some(seal) = &refused.insist { (form(asked, seal, true)) }
            }
        }
        p { a href=(path) { "Back to " (deed.name) ", nothing is done" } }
    };
    let crumbs =
        [(deed.name.as_str(), path.clone()), (deed.button.title(), format!("{path}/{}", deed.button.word()))];
    Frame { title: &title, live: None, crumbs: &crumbs }.around(&main)
}

fn form(asked: &Asked<'_>, seal: &str, force: bool) -> Markup {
    let deed = asked.deed;
    let force = force || deed.force;
    let class = if matches!(deed.button, Button::Abort | Button::Rollback | Button::Restart | Button::Skip) {
        "grave"
    } else {
        "plain"
    };
    html! {
        form method="post" action={ (asked.path()) "/" (deed.button.word()) } {
            input type="hidden" name="form" value=(asked.form);
            input type="hidden" name="seal" value=(seal);
            @if force {
                p { label { input type="checkbox" name="force" value="yes" required; " Write it here all the same" } }
            }
            p {
                label for="reason" { "Why? It is recorded with your name, in the object, its history and an event." }
                input #reason type="text" name="reason" maxlength=(MOST_OF_A_REASON) autocomplete="off" value=(asked.reason);
            }
            button.(class) type="submit" { (deed.button.title()) " " (deed.name) }
        }
    }
}

/// What was done.
#[must_use]
pub fn told(deed: &Deed, said: &str) -> Markup {
    let path = format!("/fleets/{}/{}", deed.namespace, deed.name);
    let title = format!("{} {}", deed.button.title(), deed.name);
    let main = html! {
        h1 { (title) }
        p.done role="status" { (deed.name) " " (said) }
        p { a #back href=(path) { "Back to " (deed.name) } }
    };
    Frame { title: &title, live: None, crumbs: &[(deed.name.as_str(), path.clone())] }.around(&main)
}
