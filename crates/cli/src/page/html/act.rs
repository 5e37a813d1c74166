//! The page of a button: its effect, and the form that confirms it.

use maud::{Markup, html};

use super::Frame;
use crate::page::actions::{Action, Button, MAX_REASON_CHARS, Refused, Rehearsed};

/// A click that is to be confirmed.
#[derive(Clone, Copy, Debug)]
pub struct Confirmation<'a> {
    pub action: &'a Action,
    /// The CSRF token.
    pub form: &'a str,
    /// The reason, if already entered.
    pub reason: &'a str,
    /// The refusal of the last attempt, if any.
    pub tried: Option<&'a Refused>,
}

impl Confirmation<'_> {
    fn path(&self) -> String {
        self.action.kind.path(&self.action.namespace, &self.action.name)
    }
}

/// The page of a button: its purpose, its effect, and a form.
#[must_use]
pub fn act(confirmation: &Confirmation<'_>, answer: &Result<Rehearsed, Refused>) -> Markup {
    let (action, path) = (confirmation.action, confirmation.path());
    let title = format!("{} {}", action.button.title(), action.name);
    let main = html! {
        h1 { (title) }
        p { (action.button.purpose(action.kind)) }
        @if let Some(tried) = confirmation.tried { p.refusal role="alert" { "Failed: " (tried.sentence) } }
        h2 { "Effect" }
        @match answer {
            Ok(rehearsed) => {
                p { "After the change: " strong { (rehearsed.message) } }
                @if !rehearsed.then.is_empty() { ul.then { @for line in &rehearsed.then { li { (line) } } } }
                p.dim { "This is the result of a dry run. Nothing has changed yet." }
                @if rehearsed.changes { (form(confirmation, &rehearsed.seal, false)) }
            }
            Err(refused) => {
                p.refusal role="alert" { (refused.sentence) }
                @if let Some(seal) = &refused.insist { (form(confirmation, seal, true)) }
            }
        }
        p { a href=(path) { "Back to " (action.name) " without a change" } }
    };
    let crumbs = [
        (action.name.as_str(), path.clone()),
        (action.button.title(), format!("{path}/{}", action.button.word())),
    ];
    Frame { title: &title, live: None, crumbs: &crumbs }.around(&main)
}

fn form(confirmation: &Confirmation<'_>, seal: &str, force: bool) -> Markup {
    let action = confirmation.action;
    let force = force || action.force;
    let class = if matches!(action.button, Button::Abort | Button::Rollback | Button::Restart | Button::Skip)
    {
        "grave"
    } else {
        "plain"
    };
    html! {
        form method="post" action={ (confirmation.path()) "/" (action.button.word()) } {
            input type="hidden" name="form" value=(confirmation.form);
            input type="hidden" name="seal" value=(seal);
            @if force {
                p { label { input type="checkbox" name="force" value="yes" required; " Write it anyway" } }
            }
            p {
                label for="reason" { "Reason (recorded with your name in the object, its history and an event)" }
                input #reason type="text" name="reason" maxlength=(MAX_REASON_CHARS) autocomplete="off" value=(confirmation.reason);
            }
            button.(class) type="submit" { (action.button.title()) " " (action.name) }
        }
    }
}

/// The page after the action.
#[must_use]
pub fn done(action: &Action, message: &str) -> Markup {
    let path = action.kind.path(&action.namespace, &action.name);
    let title = format!("{} {}", action.button.title(), action.name);
    let main = html! {
        h1 { (title) }
        p.done role="status" { (action.name) " " (message) }
        p { a #back href=(path) { "Back to " (action.name) } }
    };
    Frame { title: &title, live: None, crumbs: &[(action.name.as_str(), path.clone())] }.around(&main)
}
