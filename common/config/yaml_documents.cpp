#include "common/config/yaml_documents.hpp"

#include <yaml-cpp/eventhandler.h>

#include <sstream>

namespace penstock::config {
namespace {

/// Sees that each document begins after the one before.
class Progress final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (mark.pos <= last_) throw YAML::ParserException(mark, "unexpected text where a document should begin");
    last_ = mark.pos;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnAlias(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnScalar(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                const std::string& /*value*/) override {}
  void OnSequenceStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                       YAML::EmitterStyle::value /*style*/) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {}
  void OnMapEnd() override {}

 private:
  int last_ = -1;
};

}  // namespace

std::vector<YAML::Node> load_documents(const std::string& text) {
  std::istringstream input(text);
  YAML::Parser parser(input);
  Progress progress;
  while (parser.HandleNextDocument(progress)) {
  }
  return YAML::LoadAll(text);
}

}  // namespace penstock::config
