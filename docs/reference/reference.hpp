// Turns a CustomResourceDefinition into a page of docs/reference. Pure; any thread. The schema is our own file.
#pragma once

#include <string>

#include "common/json/json.hpp"

namespace penstock::reference {

/// The page's file name, "llmservice.md".
std::string page_name(const json::Value& definition);

/// The page as Markdown: what the kind is, its fields with type, default and meaning, and the rules over fields.
std::string render_page(const json::Value& definition);

}  // namespace penstock::reference
