//! Projects in Ruby.

use super::CheatOutcome::Refused;
use super::{TestedProject, cheat, check};

#[test]
fn ruby_rspec() {
    check(&TestedProject {
        name: "rspec",
        programs: &["rspec"],
        files: &[
            ("lib/app.rb", "require 'set'\ndef answer\n  41\nend\n"),
            (
                "spec/app_spec.rb",
                "require 'app'\nRSpec.describe 'answer' do\n  it('is 42') { expect(answer).to eq(42) }\nend\n",
            ),
        ],
        links: &[],
        command: "rspec",
        solution: &[("lib/app.rb", "require 'set'\ndef answer\n  42\nend\n")],
        judge: "spec/app_spec.rb",
        cheats: vec![
            cheat("options that select nothing", &[(".rspec", Some("--dry-run\n"))], Refused),
            cheat("local options", &[(".rspec-local", Some("--dry-run\n"))], Refused),
            cheat("a module in the place of an installed one", &[("lib/set.rb", Some("exit!(0)\n"))], Refused),
            cheat(
                "a helper that ends the test",
                &[("spec/spec_helper.rb", Some("exit!(0)\n")), (".rspec", Some("--require spec_helper\n"))],
                Refused,
            ),
        ],
    });
}
