//! Scans a Markdown page once for its headings, boxes, lists and inline code, each with its position.

use std::ops::Range;

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

/// The elements of a page in the order of the text. Block quotes quote other people and are skipped.
#[derive(Debug, Default)]
pub(super) struct MarkdownPage {
    pub(super) headings: Vec<MarkdownHeading>,
    /// The positions of the boxes.
    pub(super) boxes: Vec<usize>,
    /// The items of top-level lists.
    pub(super) entries: Vec<Range<usize>>,
    pub(super) blocks: Vec<TextBlock>,
    pub(super) codes: Vec<CodeSnippet>,
}

#[derive(Debug)]
pub(super) struct MarkdownHeading {
    pub(super) level: HeadingLevel,
    pub(super) range: Range<usize>,
    pub(super) text: String,
}

/// A block of text: a paragraph, or the text of a list item before its nested blocks.
#[derive(Debug)]
pub(super) struct TextBlock {
    pub(super) range: Range<usize>,
    pub(super) text: String,
}

/// Inline code, or a code block of one line.
#[derive(Debug)]
pub(super) struct CodeSnippet {
    pub(super) at: usize,
    pub(super) text: String,
    /// The text block that contains it, or that introduces it.
    pub(super) block: usize,
}

impl MarkdownPage {
    /// Returns the last heading before a position.
    pub(super) fn heading_before(&self, at: usize) -> Option<usize> {
        self.headings.iter().rposition(|heading| heading.range.start <= at)
    }

    /// Returns the text block that contains a position.
    pub(super) fn block_at(&self, at: usize) -> Option<usize> {
        let block = self.blocks.partition_point(|block| block.range.start <= at).checked_sub(1)?;
        self.blocks.get(block).filter(|found| found.range.end > at).map(|_| block)
    }

    pub(super) fn codes_from(&self, at: usize) -> impl Iterator<Item = &CodeSnippet> {
        self.codes.get(self.codes.partition_point(|code| code.at < at)..).unwrap_or_default().iter()
    }

    /// Returns where the section of a heading ends: at the next heading of the same or a higher level.
    pub(super) fn section_end(&self, heading: usize, whole: usize) -> usize {
        let Some(level) = self.headings.get(heading).map(|heading| heading.level) else { return whole };
        let after = self.headings.iter().skip(heading + 1);
        after.into_iter().find(|next| next.level <= level).map_or(whole, |next| next.range.start)
    }
}

pub(super) fn scan_page(body: &str) -> MarkdownPage {
    let mut page = MarkdownPage::default();
    let mut quotes = 0_usize;
    let mut lists = 0_usize;
    let mut open = false;
    let mut heading: Option<MarkdownHeading> = None;
    let mut code: Option<(usize, String)> = None;
    for (event, range) in Parser::new_ext(body, Options::ENABLE_TASKLISTS).into_offset_iter() {
        match event {
            Event::Start(Tag::BlockQuote(_)) => {
                quotes += 1;
                open = false;
            }
            Event::End(TagEnd::BlockQuote(_)) => quotes = quotes.saturating_sub(1),
            _ if quotes > 0 => (),
            Event::Start(Tag::Heading { level, .. }) => {
                open = false;
                heading = Some(MarkdownHeading { level, range, text: String::new() });
            }
            Event::End(TagEnd::Heading(_)) => page.headings.extend(heading.take()),
            Event::Start(Tag::List(_)) => {
                lists += 1;
                open = false;
            }
            Event::End(TagEnd::List(_)) => {
                lists = lists.saturating_sub(1);
                open = false;
            }
            Event::Start(Tag::Item) => {
                open = false;
                if lists == 1 {
                    page.entries.push(range);
                }
            }
            Event::Start(Tag::CodeBlock(_)) => {
                open = false;
                code = Some((range.start, String::new()));
            }
            Event::End(TagEnd::CodeBlock) => {
                if let Some((at, text)) = code.take().filter(|(_, text)| text.trim().lines().count() == 1)
                    && let Some(block) = page.blocks.len().checked_sub(1)
                {
                    page.codes.push(CodeSnippet { at, text: text.trim().to_owned(), block });
                }
            }
            Event::Start(Tag::Paragraph | Tag::HtmlBlock) | Event::End(TagEnd::Paragraph | TagEnd::Item) => {
                open = false;
            }
            Event::Text(text) if heading.is_some() => {
                if let Some(heading) = &mut heading {
                    heading.text.push_str(&text);
                }
            }
            Event::Code(text) if heading.is_some() => {
                if let Some(heading) = &mut heading {
                    heading.text.push_str(&text);
                }
            }
            Event::Text(text) if code.is_some() => {
                if let Some((_, code)) = &mut code {
                    code.push_str(&text);
                }
            }
            Event::TaskListMarker(_) => {
                page.boxes.push(range.end.saturating_sub(2));
                page.push_text(&mut open, &range, "");
            }
            Event::Text(text) => page.push_text(&mut open, &range, &text),
            Event::Code(text) => {
                page.push_text(&mut open, &range, &text);
                let block = page.blocks.len().saturating_sub(1);
                page.codes.push(CodeSnippet { at: range.start, text: text.trim().to_owned(), block });
            }
            Event::SoftBreak | Event::HardBreak => page.push_text(&mut open, &range, " "),
            Event::End(TagEnd::Emphasis | TagEnd::Strong | TagEnd::Link | TagEnd::Image) | Event::InlineHtml(_) => {
                page.push_text(&mut open, &range, "");
            }
            _ => (),
        }
    }
    page
}

impl MarkdownPage {
    /// Appends text to the current text block.
    fn push_text(&mut self, open: &mut bool, range: &Range<usize>, text: &str) {
        if !*open {
            self.blocks.push(TextBlock { range: range.clone(), text: String::new() });
            *open = true;
        }
        if let Some(block) = self.blocks.last_mut() {
            block.range.end = block.range.end.max(range.end);
            block.text.push_str(text);
        }
    }
}
