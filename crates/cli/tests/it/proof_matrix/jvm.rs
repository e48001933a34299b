//! Projects for the JVM.

use super::CheatOutcome::{Named, Refused};
use super::{TestedProject, cheat, check};

/// A project that needs only what Debian's packages of Maven bring along.
const POM: &str = r#"<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>a</groupId>
  <artifactId>a</artifactId>
  <version>1</version>
  <properties>
    <maven.compiler.source>17</maven.compiler.source>
    <maven.compiler.target>17</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies>
    <dependency>
      <groupId>org.junit.jupiter</groupId>
      <artifactId>junit-jupiter</artifactId>
      <version>debian</version>
      <scope>test</scope>
    </dependency>
  </dependencies>
  <build>
    <plugins>
      <plugin>
        <artifactId>maven-resources-plugin</artifactId>
        <version>3.3.0</version>
      </plugin>
      <plugin>
        <artifactId>maven-compiler-plugin</artifactId>
        <version>3.10.1</version>
      </plugin>
      <plugin>
        <artifactId>maven-surefire-plugin</artifactId>
        <version>2.22.3</version>
      </plugin>
    </plugins>
  </build>
</project>
"#;

#[test]
fn maven_junit() {
    check(&TestedProject {
        name: "Maven and JUnit",
        programs: &["mvn", "javac"],
        files: &[
            ("pom.xml", POM),
            (".gitignore", "target/\n"),
            ("src/main/java/Answer.java", "public class Answer { public static int answer() { return 41; } }\n"),
            (
                "src/test/java/AnswerTest.java",
                "import static org.junit.jupiter.api.Assertions.assertEquals;\nimport org.junit.jupiter.api.Test;\n\nclass AnswerTest {\n    @Test void answers() { assertEquals(42, Answer.answer()); }\n}\n",
            ),
        ],
        links: &[],
        // A compiler that is only warmed up costs more than it gains here.
        command: "MAVEN_OPTS='-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' mvn -o -q -Dmaven.repo.local=/usr/share/maven-repo test",
        solution: &[(
            "src/main/java/Answer.java",
            "public class Answer { public static int answer() { return 42; } }\n",
        )],
        // Each build takes seconds, and one changed test stands for all.
        judge: "",
        cheats: vec![
            cheat(
                "a class in the place of an installed one",
                &[(
                    "src/main/java/org/junit/jupiter/api/Assertions.java",
                    Some(
                        "package org.junit.jupiter.api;\n\npublic class Assertions { public static void assertEquals(int a, int b) { } }\n",
                    ),
                )],
                Refused,
            ),
            cheat(
                "disables the test",
                &[(
                    "src/test/java/AnswerTest.java",
                    Some(
                        "import org.junit.jupiter.api.Disabled;\nimport org.junit.jupiter.api.Test;\n\nclass AnswerTest {\n    @Disabled @Test void answers() { }\n}\n",
                    ),
                )],
                Refused,
            ),
            cheat(
                "options for every build",
                &[(".mvn/maven.config", Some("-DskipTests\n"))],
                Named(".mvn/maven.config"),
            ),
        ],
    });
}
