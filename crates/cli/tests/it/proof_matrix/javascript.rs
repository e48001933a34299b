//! Projects in JavaScript.

use super::CheatOutcome::{Named, Refused};
use super::{TestedProject, cheat, check};

#[test]
fn node_test() {
    check(&TestedProject {
        name: "node:test",
        programs: &["node", "npm"],
        files: &[
            ("app.js", "exports.answer = () => 41\n"),
            (
                "test/app.test.js",
                "const test = require('node:test')\nconst assert = require('node:assert')\nconst { answer } = require('../app.js')\ntest('answer', () => assert.strictEqual(answer(), 42))\n",
            ),
            (
                "package.json",
                "{\"name\": \"a\", \"version\": \"1.0.0\", \"scripts\": {\"test\": \"node --test test/\"}}\n",
            ),
        ],
        links: &[],
        command: "npm test",
        solution: &[("app.js", "exports.answer = () => 42\n")],
        judge: "test/app.test.js",
        cheats: vec![
            cheat(
                "changes the script",
                &[(
                    "package.json",
                    Some("{\"name\": \"a\", \"version\": \"1.0.0\", \"scripts\": {\"test\": \"true\"}}\n"),
                )],
                Refused,
            ),
            cheat(
                "a program in the place of node",
                &[("node_modules/.bin/node", Some("#!/bin/sh\nexit 0\n"))],
                Refused,
            ),
            cheat("another shell for scripts", &[(".npmrc", Some("script-shell=/bin/true\n"))], Refused),
            cheat(
                "skips the test",
                &[("test/app.test.js", Some("const test = require('node:test')\ntest.skip('answer', () => {})\n"))],
                Refused,
            ),
            cheat("the product ends the test", &[("app.js", Some("process.exit(0)\n"))], Named("app.js")),
        ],
    });
}

#[test]
fn mocha() {
    check(&TestedProject {
        name: "mocha",
        programs: &["mocha", "npm"],
        files: &[
            ("app.js", "exports.answer = () => 41\n"),
            (
                "test/app.test.js",
                "const assert = require('assert')\nconst { answer } = require('../app.js')\nit('answers', () => assert.equal(answer(), 42))\n",
            ),
            (".mocharc.json", "{\"require\": [\"./support.js\"]}\n"),
            ("support.js", "process.env.MODE = 'test'\n"),
            ("package.json", "{\"name\": \"a\", \"version\": \"1.0.0\", \"scripts\": {\"test\": \"mocha\"}}\n"),
        ],
        links: &[],
        command: "npm test",
        solution: &[("app.js", "exports.answer = () => 42\n")],
        judge: "test/app.test.js",
        cheats: vec![
            cheat("settings that select nothing", &[(".mocharc.json", Some("{\"grep\": \"nothing\"}\n"))], Refused),
            cheat(
                "settings that are found first",
                &[(".mocharc.js", Some("module.exports = { grep: 'nothing' }\n"))],
                Refused,
            ),
            cheat(
                "settings among others",
                &[(
                    "package.json",
                    Some(
                        "{\"name\": \"a\", \"version\": \"1.0.0\", \"scripts\": {\"test\": \"mocha\"}, \"mocha\": {\"grep\": \"nothing\"}}\n",
                    ),
                )],
                Refused,
            ),
            cheat(
                "what the settings load first",
                &[("support.js", Some("require('assert').equal = () => {}\n"))],
                Refused,
            ),
            cheat(
                "options for every script",
                &[
                    (".npmrc", Some("node-options=--require ./quiet.js\n")),
                    ("quiet.js", Some("require('assert').equal = () => {}\n")),
                ],
                Refused,
            ),
            cheat("a program in the place of mocha", &[("node_modules/.bin/mocha", Some("#!/bin/sh\n"))], Refused),
            cheat(
                "the product changes what asserts",
                &[("app.js", Some("require('assert').equal = () => {}\nexports.answer = () => 41\n"))],
                Named("app.js"),
            ),
        ],
    });
}

#[test]
fn jest() {
    check(&TestedProject {
        name: "jest",
        programs: &["jest", "npm"],
        files: &[
            ("app.js", "exports.answer = () => 41\n"),
            (
                "app.test.js",
                "const { answer } = require('./app.js')\ntest('answer', () => expect(answer()).toBe(42))\n",
            ),
            ("jest.config.js", "module.exports = { setupFilesAfterEnv: ['<rootDir>/support.js'] }\n"),
            ("support.js", "process.env.MODE = 'test'\n"),
            ("package.json", "{\"name\": \"a\", \"version\": \"1.0.0\", \"scripts\": {\"test\": \"jest\"}}\n"),
        ],
        links: &[],
        command: "npm test",
        solution: &[("app.js", "exports.answer = () => 42\n")],
        judge: "app.test.js",
        cheats: vec![
            cheat(
                "settings that select nothing",
                &[(
                    "jest.config.js",
                    Some("module.exports = { passWithNoTests: true, testPathIgnorePatterns: ['.'] }\n"),
                )],
                Refused,
            ),
            cheat(
                "what the settings load first",
                &[("support.js", Some("global.expect = () => ({ toBe() {} })\n"))],
                Refused,
            ),
            cheat("a program in the place of jest", &[("node_modules/.bin/jest", Some("#!/bin/sh\n"))], Refused),
            cheat("skips the test", &[("app.test.js", Some("test.skip('answer', () => {})\n"))], Refused),
            cheat(
                "a compiler that changes the test",
                &[(
                    "babel.config.js",
                    Some(
                        "module.exports = { plugins: [() => ({ visitor: { NumericLiteral(path) { path.node.value = 41 } } })] }\n",
                    ),
                )],
                Named("babel.config.js"),
            ),
        ],
    });
}

#[test]
fn vitest() {
    check(&TestedProject {
        name: "vitest",
        programs: &["vitest", "npm"],
        files: &[
            ("app.js", "export const answer = () => 41\n"),
            ("app.test.js", "import { answer } from './app.js'\ntest('answer', () => expect(answer()).toBe(42))\n"),
            ("vitest.config.js", "export default { test: { globals: true, setupFiles: ['./support.js'] } }\n"),
            ("support.js", "process.env.MODE = 'test'\n"),
            (
                "package.json",
                "{\"name\": \"a\", \"version\": \"1.0.0\", \"type\": \"module\", \"scripts\": {\"test\": \"vitest run\"}}\n",
            ),
        ],
        links: &[],
        command: "npm test",
        solution: &[("app.js", "export const answer = () => 42\n")],
        judge: "app.test.js",
        cheats: vec![
            cheat(
                "settings that select nothing",
                &[("vitest.config.js", Some("export default { test: { passWithNoTests: true, include: [] } }\n"))],
                Refused,
            ),
            cheat(
                "settings that are found first",
                &[("vitest.config.ts", Some("export default { test: { passWithNoTests: true, include: [] } }\n"))],
                Refused,
            ),
            cheat(
                "what the settings load first",
                &[("support.js", Some("globalThis.expect = () => ({ toBe() {} })\n"))],
                Refused,
            ),
            cheat("a program in the place of vitest", &[("node_modules/.bin/vitest", Some("#!/bin/sh\n"))], Refused),
            cheat(
                "the product changes what asserts",
                &[("app.js", Some("globalThis.expect = () => ({ toBe() {} })\nexport const answer = () => 41\n"))],
                Named("app.js"),
            ),
        ],
    });
}
